"""The toy regression set."""

import torch

from experiments.toy_regression import toy_regression


def test_shape_type_and_gaps():
    x, y = toy_regression()
    assert x.shape == y.shape == (20, 1)
    assert x.dtype == y.dtype == torch.float32
    assert -5 <= x.min() < -3
    assert 2.5 < x.max() <= 5
    assert (x.diff(dim=0) >= 0).all()
    assert (x.diff(dim=0) >= 1.5).sum() == 2  # two gaps


def test_noise_about_the_curve():
    """Pooled over 200 seeds, the residuals of y = x sin(x) have mean 0 and standard deviation 0.3."""
    residuals = torch.cat([y - x * x.sin() for x, y in map(toy_regression, range(200))]).double()
    n = len(residuals)
    assert abs(residuals.mean()) < 4 * 0.3 / n**0.5
    assert abs(residuals.std() - 0.3) < 4 * 0.3 / (2 * n) ** 0.5
