"""Figures 3, 7 and 8 of the MCBN paper in small: what is looked at, what is said, what is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from bayesnorm.theory import Normality
from experiments import teye_figure3
from experiments.splits import paper_rows
from experiments.teye_figure3 import LAYERS, figure3

from ..marks import takes_long

SMALL = {"epochs": (1, 3), "batch_sizes": (16, 32), "batches": 40}


def rows(n=90):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator)
    return x, x[:, :1].square() + 0.1 * torch.randn(n, 1, generator=generator)


@pytest.fixture(scope="module")
def figure():
    return figure3(*rows(), **SMALL)


def test_what_is_looked_at(figure):
    assert list(figure.epochs) == [1, 3]
    assert [size.batch_size for size in figure.trained.sizes] == [16, 32]
    for diagnosis in (figure.trained, *figure.epochs.values()):
        size = diagnosis.at(32)
        assert (size.rows, size.batches) == (90, 40)
        assert tuple(layer.name for layer in size.layers) == LAYERS
        assert [layer.mean.units for layer in size.layers] == [50, 50]
    last, end = (diagnosis.at(32).table() for diagnosis in (figure.epochs[3], figure.trained))
    assert last == end, "the last look in training is at the trained network"
    assert figure.epochs[1].at(32).table() != end


def test_the_verdict_comes_from_the_numbers(figure):
    said = figure.verdict()
    size = figure.trained.at(32)
    shares = [int(share) / 100 for share in re.findall(r"(\d+)% of units rejected", said)]
    ones = [one for layer in size.layers for one in (layer.mean, layer.std)]
    assert shares == [share for one in ones for share in (one.fitted_rejected, one.rejected)]
    variances = [float(value) for value in re.findall(r"; variance ([\d.]+) times the theoretical one", said)]
    assert variances == pytest.approx([float(one.variance_ratio.median()) for one in ones], abs=0.005)
    assert f"{abs(size.variance_lost):.0%} of the outputs' variance" in said
    assert f"not independent: mean |correlation| in a layer {size.dependence.within:.2f}" in said
    assert f"from 90 rows alone lowers variances to {58 / 89:.2f} times the theoretical ones" in said


def test_the_words_follow_the_tests():
    normal = torch.randn(200, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert teye_figure3._judged(Normality.test(normal), fitted=False).startswith("the normal holds")
    assert teye_figure3._judged(Normality.test(3 * normal), fitted=False).startswith("the normal does not hold")
    assert teye_figure3._judged(Normality.test(3 * normal), fitted=True).startswith("the normal holds")
    assert teye_figure3._judged(Normality.test(normal.exp()), fitted=True).startswith("the normal does not hold")
    # Perfectly normal but for a shift of 0.24, which puts probabilities off by 0.095: seen from 200 batches on.
    even = torch.special.ndtri((normal.argsort(0).argsort(0) + 0.5) / 200)
    assert teye_figure3._judged(Normality.test(0.24 + even), fitted=False).startswith("the normal nearly holds")


@takes_long
def test_same_seed_same_numbers(figure):
    again, other = (figure3(*rows(), **SMALL, seed=seed).trained.table() for seed in (0, 1))
    assert again == figure.trained.table()
    assert again != other


def test_main_prints_tables_verdict_and_paths(monkeypatch, tmp_path, capsys):
    for name, value in SMALL.items():
        monkeypatch.setattr(teye_figure3, name.upper(), value)
    monkeypatch.setattr(teye_figure3, "paper_rows", lambda name, number: (rows(), None))
    teye_figure3.main(tmp_path / "new")
    printed = capsys.readouterr().out
    assert "Batch size 16: 40 batches from 90 training examples" in printed
    assert "Independent samples would" in printed.split("Trained network")[1]
    paths = [Path(path) for path in re.findall(r"^.*\.png$", printed, re.MULTILINE)]
    assert [path.parent for path in paths] == [tmp_path / "new"] * 3
    assert [path.name for path in paths] == ["teye_figure3.png", "teye_figure7.png", "teye_figure8.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_yacht_is_the_papers_first_split(require):
    require("uci/yacht.npz")
    (x, y), _ = paper_rows("yacht", 1)
    assert (tuple(x.shape), tuple(y.shape)) == ((246, 6), (246, 1))
