"""Fits and predictions leave nothing behind: the rounds of benchmarks/soak.py, a few of them."""

from __future__ import annotations

import sys

import pytest
import torch

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install 'bayesnorm[tabular]'")

from benchmarks import soak


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_fits_and_predictions_leave_nothing_behind(tmp_path):
    counts = []
    for _ in range(3):  # the first is for what is made once
        asked = [soak.fit_and_ask(method, case, tmp_path) for method, case in soak.METHODS[::2]]
        now = soak.held(len(asked), sum(asked))
        counts.append((now.tensors, now.threads, now.files))
    assert counts[1] == counts[2]


def test_what_grows_is_seen():
    def held(files):
        return soak.Held(10, 50, resident_mib=400.0, tensors=8, threads=1, files=files)

    assert set(soak.grown([held(5)] * 8).values()) == {0}
    assert soak.grown([held(number) for number in range(8)])["files"] > 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_is_kept_is_counted(tmp_path):
    before = soak.held(0, 0)
    kept = torch.zeros(1)
    with (tmp_path / "file").open("w"):
        after = soak.held(0, 0)
    assert (after.tensors, after.files) == (before.tensors + 1, before.files + 1), kept
