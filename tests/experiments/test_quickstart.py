"""The quickstart in small: it runs, its numbers are sane, and the picture is where it says."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'bayesnorm[plots]'")
pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bayesnorm[tabular]'")
pytest.importorskip("rich", reason="needs rich: pip install 'bayesnorm[cli]'")
from bayesnorm.experiments import quickstart, teye_figure1

METHODS = ["BN", "MCBN (paper)", "MCBN, centred", "MCBN, M' chosen"]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(quickstart, "EPOCHS", 30)
    monkeypatch.setattr(quickstart, "DRAWS", 64)
    whole = teye_figure1.figure1
    monkeypatch.setattr(quickstart, "figure1", lambda progress=None: whole(epochs=5, progress=progress))


def test_one_split_has_sane_numbers():
    done = []
    found = quickstart.one_split(0, progress=lambda epoch, _total: done.append(epoch))
    assert list(found) == METHODS
    assert done[0] == 1
    _, y = quickstart.diabetes()
    spread = y.std().item()
    for name, row in found.items():
        assert all(math.isfinite(value) for value in row.values()), name
        # Linear regression reaches an RMSE of 54 on this table; the mean alone 77, the targets' standard deviation.
        assert 40 < row["RMSE"] < 0.95 * spread, name
        assert row["CRPS, constant"] < row["RMSE"]
        # No Gaussian with one variance beats -log(std sqrt(2 pi e)) by far on rows that it was not chosen on.
        assert -7 < row["PLL, constant"] < -4.5
    assert found["BN"].keys() == {"RMSE", "PLL, constant", "CRPS, constant"}
    for name in METHODS[1:]:
        row = found[name]
        assert row["CRPS"] < row["RMSE"]
        assert abs(row["CRPS"] / row["CRPS, constant"] - 1) < 0.1
        # Gain is the share of the way from constant to perfect doubt: positive where CRPS is the lower one.
        assert (row["gain"] > 0) == (row["CRPS"] < row["CRPS, constant"])


def test_same_seed_same_numbers_and_no_global_ones(monkeypatch):
    monkeypatch.setattr(quickstart, "EPOCHS", 2)
    before = torch.get_rng_state()
    first = quickstart.one_split(1)
    assert torch.equal(torch.get_rng_state(), before)
    assert quickstart.one_split(1) == first
    assert quickstart.one_split(2) != first


def test_main_prints_a_table_and_writes_the_picture(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(quickstart, "EPOCHS", 2)
    monkeypatch.setattr(sys, "argv", ["quickstart", "--splits", "1", "--out", str(tmp_path / "new" / "folder")])
    quickstart.main()
    printed = capsys.readouterr().out
    for word in (*METHODS, "RMSE", "CRPS", "gain %"):
        assert word in printed
    path = Path(re.search(r"Picture: (.*\.png)", printed).group(1))
    assert path == (tmp_path / "new" / "folder" / "figure1.png").resolve()
    assert path.read_bytes().startswith(b"\x89PNG")
    assert max(map(len, printed.splitlines()[:-1])) <= 80, "fits a terminal"
