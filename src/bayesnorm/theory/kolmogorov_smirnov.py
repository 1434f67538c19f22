"""Kolmogorov-Smirnov tests of normality, for many units at once.

The distance D is the largest gap between the distribution function of a sample of size n and that of a normal. Its
p-value depends on how the normal was chosen:

- If its mean and standard deviation were known beforehand, D has Kolmogorov's distribution, which SciPy computes
  exactly for any n.
- If they were estimated from the same sample, D is much smaller, and the p-value above is far too large. The correct
  one (Lilliefors 1967) has no formula; it is simulated here.
"""

from __future__ import annotations

from functools import lru_cache

import scipy
import torch
from torch import Tensor

# Simulated samples for a p-value of Lilliefors' test; the smallest possible p-value is 1 / 4001.
SIMULATIONS = 4000


def normal_distance(values: Tensor) -> Tensor:
    """Return D between each column of sorted values (n, units) and the standard normal, (units,); NaN stays NaN."""
    n = len(values)
    below = torch.special.ndtr(values.double())
    steps = torch.arange(n + 1, dtype=torch.float64, device=values.device)[:, None] / n
    return torch.maximum(steps[1:] - below, below - steps[:-1]).amax(0)


def fitted(values: Tensor) -> Tensor:
    """Standardise each column of values (n, units) by its mean and standard deviation (n - 1); NaN if constant."""
    std, mean = torch.std_mean(values.double(), dim=0)
    return torch.where(std > 0, (values.double() - mean) / std, torch.nan)


def p_value(distance: Tensor, n: int) -> Tensor:
    """Return P(D >= distance), elementwise, for samples of size n and a normal that was known beforehand."""
    tails = scipy.stats.kstwo.sf(distance.double().cpu().numpy(), n)
    return torch.as_tensor(tails, device=distance.device)


def fitted_p_value(distance: Tensor, n: int) -> Tensor:
    """Return P(D >= distance) for samples of size n and a normal fitted to the same sample (Lilliefors)."""
    null = simulated_distances(n).to(distance.device)
    at_least = SIMULATIONS - torch.searchsorted(null, distance.double().contiguous())
    return torch.where(distance.isnan(), torch.nan, (1 + at_least) / (1 + SIMULATIONS))


def critical_distance(n: int, level: float = 0.05) -> float:
    """Return the D whose `p_value` is `level`."""
    return float(scipy.stats.kstwo.isf(level, n))


@lru_cache(maxsize=8)
def simulated_distances(n: int) -> Tensor:
    """Return simulated distances of normal samples of size n to their fitted normals, sorted, (SIMULATIONS,)."""
    samples = torch.randn(n, SIMULATIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return normal_distance(fitted(samples.sort(0).values)).sort().values
