"""What tests of q, of priors and of Omega share: two priors, some q, and q by hand."""

import torch

from bayesnorm.network import BatchNormLayer
from bayesnorm.theory import GaussianPrior, UnitGaussians

from ..two_norms import TIGHT, rows

PRIOR = GaussianPrior(mean_loc=0.2, mean_std=0.7, std_loc=0.9, std_std=0.4)
FLAT = GaussianPrior(mean_loc=0.0, mean_std=None, std_loc=0.9, std_std=0.4)
FIELDS = ("mean_loc", "mean_var", "std_loc", "std_var")
NAN = float("nan")


def some_q(units=6, batch_size=20.0):
    layers = (BatchNormLayer("a", units - 2, 1e-5), BatchNormLayer("b", 2, 1e-5))
    mean_loc, std_loc = rows(units, seed=1), rows(units, seed=2).abs() + 0.3
    mean_var, std_var = (rows(units, seed=seed).square() / 4 + 0.01 for seed in (3, 4))
    return UnitGaussians(layers, mean_loc, mean_var, std_loc, std_var, batch_size)


def by_hand(h, size):
    """q's four parameters from the layer's inputs; for h without pixels the paper's formulas as they stand."""
    over = [0, *range(2, h.dim())]
    mean, var = h.mean(over), h.var(over, correction=0)
    if h.dim() == 2:
        m4 = (h - mean).pow(4).mean(0)
        return mean, var / size, var.sqrt(), (m4 - var.square()) / (4 * var * size)
    flat = h.flatten(2)
    squares = (flat - mean[:, None]).square().mean(2)
    mean_var, square_var = flat.mean(2).var(0, correction=0), squares.var(0, correction=0)
    return mean, mean_var / size, var.sqrt(), square_var / (4 * var * size)


def assert_same(q, expected, **tolerance):
    for name, value in zip(FIELDS, expected, strict=True):
        torch.testing.assert_close(getattr(q, name), value, **(tolerance or TIGHT))
