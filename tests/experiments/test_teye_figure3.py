"""Figures 3, 7 and 8 of the MCBN paper in small: what is looked at, what is said, what is drawn."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from experiments import teye_figure3
from experiments.normality import rejected_by_chance
from experiments.teye_figure3 import figure3

SMALL = {"epochs": (1, 3), "batch_sizes": (16, 32), "batches": 40}


def rows(n=90):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 4, generator=generator)
    return x, x[:, :1].square() + 0.1 * torch.randn(n, 1, generator=generator)


@pytest.fixture(scope="module")
def figure():
    return figure3(*rows(), **SMALL)


def test_the_verdict_comes_from_the_numbers(figure, monkeypatch):
    monkeypatch.setattr(teye_figure3, "rejected_by_chance", partial(rejected_by_chance, repeats=5))
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


def test_main_prints_tables_verdict_and_paths(figure, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(teye_figure3, "figure3", lambda *_rows, **_sizes: figure)
    monkeypatch.setattr(teye_figure3, "paper_rows", lambda name, number: (rows(), None))
    monkeypatch.setattr(teye_figure3, "rejected_by_chance", partial(rejected_by_chance, repeats=5))
    teye_figure3.main(tmp_path / "new")
    printed = capsys.readouterr().out
    assert "Batch size 16: 40 batches from 90 training examples" in printed
    assert "Independent samples would" in printed.split("Trained network")[1]
    paths = [Path(path) for path in re.findall(r"^.*\.png$", printed, re.MULTILINE)]
    assert [path.parent for path in paths] == [tmp_path / "new"] * 3
    assert [path.name for path in paths] == ["teye_figure3.png", "teye_figure7.png", "teye_figure8.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
