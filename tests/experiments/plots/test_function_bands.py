"""A function with its bands: the numbers first, then what is drawn of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import bayesnorm as bn

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
from experiments.plots import FunctionBands


@pytest.fixture
def posterior():
    model = nn.Sequential(nn.Linear(1, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 1)).eval()
    x = torch.linspace(-1, 1, 40)[:, None]
    return bn.MCBN(batch_size=8, states=20).fit(model, x, bn.Gaussian(25.0))


GRID = np.linspace(-2, 2, 31)


def test_numbers_are_the_predictives(posterior):
    engine = bn.MonteCarlo(30)
    bands = FunctionBands.from_posterior(posterior, GRID, levels=(0.9, 0.3), engine=engine, seed=4, constant_std=0.5)
    predictive = posterior.predict(GRID[:, None], engine, seed=4)
    np.testing.assert_allclose(bands.x, GRID)
    np.testing.assert_allclose(bands.mean, predictive.mean.numpy()[:, 0])
    for level in (0.9, 0.3):
        for found, expected in zip(bands.bands[level], predictive.interval(level), strict=True):
            np.testing.assert_allclose(found, expected.numpy()[:, 0])
    assert bands.constant_std == 0.5
    assert (bands.bands[0.9][0] < bands.bands[0.3][0]).all()
    assert (bands.bands[0.9][1] > bands.bands[0.3][1]).all()


def test_everything_is_drawn_and_labelled(posterior):
    bands = FunctionBands.from_posterior(posterior, GRID, constant_std=0.5)
    ax = bands.draw(points=(torch.zeros(3, 1), torch.ones(3, 1, requires_grad=True)))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == [
        "95 % interval",
        "50 % interval",
        "predictive mean",
        "95 % interval, constant standard deviation",
        "training points",
    ]
    mean, *edges = ax.get_lines()
    np.testing.assert_allclose(mean.get_ydata(), bands.mean)
    half = 1.959964 * 0.5
    for line, sign in zip(edges, (-1, 1), strict=True):
        np.testing.assert_allclose(line.get_ydata(), bands.mean + sign * half)
    heights = [np.ptp(band.get_paths()[0].vertices[:, 1]) for band in ax.collections[:2]]
    assert heights[0] > heights[1], "the wider band lies below"
    np.testing.assert_allclose(ax.collections[2].get_offsets(), [[0, 1]] * 3)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x", "y")
