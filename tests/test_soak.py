"""Fits and predictions leave nothing behind: the rounds of benchmarks/soak.py, a few of them."""

import sys

import pytest
import torch

pytest.importorskip("bayesnorm.tabular", reason="needs scikit-learn and pandas: pip install scikit-learn pandas")

from benchmarks import soak

from .marks import takes_long


@takes_long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_fits_and_predictions_leave_nothing_behind(tmp_path):
    def counted():
        now = soak.held(0, 0)
        return now.tensors, now.threads, now.files

    def one_round():
        for method, case in soak.METHODS[::3]:
            soak.fit_and_ask(method, case, tmp_path)

    for _ in range(2):  # what is made once is there then
        one_round()
    before = counted()
    one_round()
    assert counted() == before
    sink = torch.zeros(1)
    with (tmp_path / "file").open("w"):
        assert counted() == (before[0] + len(sink), before[1], before[2] + 1), "what is kept is seen"


def test_what_grows_is_seen():
    def held(files):
        return soak.Held(10, 50, resident_mib=400.0, tensors=8, threads=1, files=files)

    assert set(soak.grown([held(5)] * 8).values()) == {0}
    assert soak.grown([held(number) for number in range(8)])["files"] > 0
