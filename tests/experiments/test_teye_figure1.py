"""Figure 1 of the MCBN paper: its claim, and its picture."""

import pytest
import torch

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install matplotlib")
import numpy as np

import bayesnorm as bn
from experiments.teye_figure1 import DRAWS, figure1


@pytest.fixture(scope="module")
def figure():
    return figure1(epochs=150)


def test_uncertainty_is_larger_outside_the_data(figure):
    """At x = 6, outside the data, against every training point."""
    x, _ = figure.points
    engine = bn.MonteCarlo(DRAWS)
    outside = figure.posterior.predict(torch.tensor([[6.0]]), engine).epistemic.item()
    inside = figure.posterior.predict(x, engine).epistemic
    assert x.max() < 5
    assert outside > 2 * inside.median().item()
    assert outside > inside.max().item()


def test_bands_show_that_uncertainty(figure):
    lower, upper = figure.bands.bands[0.95]
    width = upper - lower
    training = np.searchsorted(figure.bands.x, figure.points[0].numpy()[:, 0])
    assert figure.bands.x[[0, -1]].tolist() == [-6, 6]
    assert width[-1] > width[training].max()
    assert figure.bands.constant_std > 0
