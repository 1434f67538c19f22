"""Kolmogorov-Smirnov tests of normality, for many units at once.

The distance D is the largest gap between the distribution function of a sample of n and that of a normal. What a given
D is worth depends on where the normal came from:

- Its mean and standard deviation were known beforehand. Then D has Kolmogorov's distribution, which SciPy computes
  exactly for any n.
- They were taken from the sample itself. The normal then follows the sample, D comes out far smaller, and
  the p-value above is much too lenient. The right one (Lilliefors 1967) has no formula; it is simulated here.
"""

from __future__ import annotations

import math
from functools import lru_cache

import scipy
import torch
from torch import Tensor

# Normal samples behind a p-value of Lilliefors' test; the smallest that it can give is 1 / 4001.
SIMULATIONS = 4000


def normal_distance(values: Tensor) -> Tensor:
    """Return D between each column of sorted values (n, units) and the standard normal, (units,); NaN stays NaN."""
    n = len(values)
    below = torch.special.ndtr(values.double())
    steps = torch.arange(n + 1, dtype=torch.float64, device=values.device)[:, None] / n
    return torch.maximum(steps[1:] - below, below - steps[:-1]).amax(0)


def fitted(values: Tensor) -> Tensor:
    """Standardise each column of values (n, units) by its own mean and deviation (n - 1); NaN where it is constant."""
    std, mean = torch.std_mean(values.double(), dim=0)
    return torch.where(std > 0, (values.double() - mean) / std, torch.nan)


def p_value(distance: Tensor, n: int) -> Tensor:
    """Return P(D >= distance), in its shape, for samples of n from a normal that was known beforehand."""
    found = scipy.stats.kstwo.sf(distance.double().cpu().numpy(), n)
    return torch.as_tensor(found, device=distance.device)


def fitted_p_value(distance: Tensor, n: int) -> Tensor:
    """Return P(D >= distance) for samples of n from a normal whose moments were taken from the sample (Lilliefors)."""
    null = _simulated_distances(n).to(distance.device)
    at_least = SIMULATIONS - torch.searchsorted(null, distance.double().contiguous())
    return torch.where(distance.isnan(), torch.nan, (1 + at_least) / (1 + SIMULATIONS))


def critical_distance(n: int, level: float = 0.05) -> float:
    """Return the D whose `p_value` is `level`."""
    return float(scipy.stats.kstwo.isf(level, n))


def fitted_critical_distance(n: int, level: float = 0.05) -> float:
    """Return the smallest simulated D whose `fitted_p_value` is at most `level`."""
    return float(_simulated_distances(n)[math.ceil((1 - level) * (SIMULATIONS + 1))])


@lru_cache(maxsize=8)
def _simulated_distances(n: int) -> Tensor:
    """Draw D of normal samples of n to the normal of their own moments, sorted, (SIMULATIONS,)."""
    samples = torch.randn(n, SIMULATIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return normal_distance(fitted(samples.sort(0).values)).sort().values
