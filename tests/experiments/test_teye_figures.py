"""Figures 1, 3, 7 and 8 of the MCBN paper: their claims, verdicts and pictures, at small sizes."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import bayesnorm as bn
from experiments import teye_figure3
from experiments.normality import rejected_by_chance
from experiments.teye_figure1 import DRAWS, figure1
from experiments.teye_figure3 import figure3

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")


@pytest.fixture(scope="module")
def bands_figure():
    return figure1(epochs=150)


def test_uncertainty_is_larger_outside_the_data(bands_figure):
    """At x = 6, outside the data, against every training point."""
    x, _ = bands_figure.points
    engine = bn.MonteCarlo(DRAWS)
    outside = bands_figure.posterior.predict(torch.tensor([[6.0]]), engine).epistemic.item()
    inside = bands_figure.posterior.predict(x, engine).epistemic
    assert x.max() < 5
    assert outside > 2 * inside.median().item()
    assert outside > inside.max().item()


def test_bands_show_that_uncertainty(bands_figure):
    lower, upper = bands_figure.bands.bands[0.95]
    width = upper - lower
    training = np.searchsorted(bands_figure.bands.x, bands_figure.points[0].numpy()[:, 0])
    assert bands_figure.bands.x[[0, -1]].tolist() == [-6, 6]
    assert width[-1] > width[training].max()
    assert bands_figure.bands.constant_std > 0


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
