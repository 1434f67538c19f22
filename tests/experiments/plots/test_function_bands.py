"""A function with its bands: the numbers first, then what is drawn of them."""

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
