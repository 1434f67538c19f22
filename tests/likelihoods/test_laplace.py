"""Laplace noise: SciPy's numbers, and CRPS in closed form."""

import numpy as np
import pytest
import scoringrules
import torch
from scipy import integrate, stats

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.predictive import LaplaceNoise

Z = torch.tensor([-40.0, -3.0, -0.2, 0.0, 1e-9, 0.7, 5.0, 30.0], dtype=torch.float64)


def test_the_standard_form_is_scipys():
    noise = LaplaceNoise()
    np.testing.assert_allclose(noise.log_prob(Z), stats.laplace.logpdf(Z), rtol=1e-12)
    np.testing.assert_allclose(noise.cdf(Z), stats.laplace.cdf(Z), rtol=1e-12)
    levels = torch.tensor([1e-9, 0.1, 0.5, 0.8, 0.999], dtype=torch.float64)
    np.testing.assert_allclose(noise.icdf(levels), stats.laplace.ppf(levels), rtol=1e-10, atol=1e-15)
    assert noise.variance == stats.laplace.var()


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [(1.0, 1.0, -3.0), (1.0, 1.0 + 1e-9, 0.4), (1.0, 1.001, 0.4), (2.0, 0.3, 0.0), (0.5, 4.0, -3.0)],
)
def test_distances_are_those_of_quadrature(first, second, difference):
    noise = LaplaceNoise()
    d, a, b = (torch.tensor(value, dtype=torch.float64) for value in (difference, first, second))

    def one(z):
        return abs(difference + first * z) * stats.laplace.pdf(z)

    edges = [-difference / first]
    exact = sum(integrate.quad(one, *ends)[0] for ends in [(-60, edges[0]), (edges[0], 60)])
    assert float(noise.distance(d, a)) == pytest.approx(exact, rel=1e-7)

    def two(z):  # E over the other noise in closed form
        return float(noise.distance(d + first * z, b)) * stats.laplace.pdf(z)

    exact = sum(integrate.quad(two, *ends)[0] for ends in [(-60, edges[0]), (edges[0], 0.0), (0.0, 60)])
    # Nearly equal scales are taken as equal: an error of second order, below 1e-6.
    assert float(noise.distance_of_two(d, a, b)) == pytest.approx(exact, rel=2e-6)


def test_crps_of_one_draw_is_scoringrules():
    f = torch.randn(1, 50, 1, dtype=torch.float64)
    y = torch.randn(50, 1, dtype=torch.float64) * 3
    result = metrics.crps_points(bn.Laplace(0.7).predictive(f), y, form="mixture")
    np.testing.assert_allclose(result, scoringrules.crps_laplace(y.numpy(), f[0].numpy(), 0.7), rtol=1e-9)


def test_calibrating_finds_the_scale():
    """The likeliest scale is the mean absolute error; CRPS finds the true one too, within its standard error."""
    rows, scale = 4000, 0.4
    model = torch.nn.Linear(1, 1).double()
    x = torch.randn(rows, 1, dtype=torch.float64)
    noise = torch.distributions.Laplace(0.0, scale).sample((rows, 1)).double()
    y = model(x).detach() + noise
    posterior = bn.deterministic(model, bn.Laplace())
    result = bn.calibrate(posterior, x, y, score="pll").likelihood.scale
    assert result == pytest.approx(noise.abs().mean().item(), rel=1e-6)
    # |noise| has standard deviation `scale`, so that its mean is off by scale / sqrt(rows); CRPS is less efficient.
    by_crps = bn.calibrate(posterior, x, y).likelihood.scale
    assert abs(by_crps / scale - 1) < 4.5 * 1.5 / rows**0.5


def test_distances_know_no_units():
    """Single precision holds the cube of no such number."""
    for unit in (1e-30, 1e-14, 1e14, 1e30):
        d, a, b = torch.tensor([0.0, 0.4, 3.0]), torch.tensor([2.0, 0.5, 0.3]), torch.tensor([0.3, 4.0, 0.0])
        expected = LaplaceNoise().distance_of_two(d, a, b)
        result = LaplaceNoise().distance_of_two(unit * d, unit * a, unit * b) / unit
        torch.testing.assert_close(result, expected)
