"""Kolmogorov-Smirnov tests of normality, for many units at once.

The distance D is the largest gap between the distribution function of a sample of n and that of a normal. What a given
D is worth depends on where the normal came from:

- Its mean and standard deviation were known beforehand. P(D_n >= d) is Kolmogorov's series

      2 sum_k (-1)^(k-1) exp(-2 k^2 z^2),     z = x + 1 / (6 sqrt(n)) + (x - 1) / (4 n),     x = sqrt(n) d,

  with Vrbik's (2018) correction of z for finite n. Its first term stands for 2 P(D_n^+ >= d), the chance of leaving
  the band on one side or the other; from z = 1 on, Smirnov's exact sum is taken for that. The relative error of p is
  then below 0.1 / n, and small p-values are right to many digits.
- They were taken from the sample itself. The normal then follows the sample, D comes out far smaller, and
  the p-value above is much too lenient. The right one (Lilliefors 1967) has no formula; it is simulated here.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

SIMULATIONS = 4000
"""Normal samples behind a p-value of Lilliefors' test; the smallest that it can give is 1 / 4001."""

TERMS = 40
"""Of Kolmogorov's series; from z = 0.2 on, below which p is 1 to nine digits, more would change nothing."""

BLOCK = 2**22
"""Numbers of Smirnov's sums that are held at a time."""


def normal_distance(values: Tensor) -> Tensor:
    """D between each column of sorted values (n, units) and the standard normal, (units,); NaN columns give NaN."""
    n = len(values)
    below = torch.special.ndtr(values.double())
    steps = torch.arange(n + 1, dtype=torch.float64, device=values.device)[:, None] / n
    return torch.maximum(steps[1:] - below, below - steps[:-1]).amax(0)


def fitted(values: Tensor) -> Tensor:
    """Each column of values (n, units) by its own mean and standard deviation (n - 1); NaN where it is constant."""
    std, mean = torch.std_mean(values.double(), dim=0)
    return torch.where(std > 0, (values.double() - mean) / std, torch.nan)


def p_value(distance: Tensor, n: int) -> Tensor:
    """P(D >= distance) for samples of n from a normal that was known beforehand; of the shape of `distance`."""
    flat = distance.double().flatten()
    x = math.sqrt(n) * flat
    z = x + 1 / (6 * math.sqrt(n)) + (x - 1) / (4 * n)
    k = torch.arange(1, TERMS, dtype=torch.float64, device=flat.device)
    terms = torch.exp(-2 * (k * z[:, None]).square())
    exact = torch.cat([_one_side(part, n) for part in flat.split(max(1, BLOCK // n))])
    terms[:, 0] = torch.where(z < 1, terms[:, 0], exact)
    found = 2 * (terms[:, ::2].sum(1) - terms[:, 1::2].sum(1))
    found = torch.where(z < 0.2, 1.0, found.clamp(0, 1))
    return torch.where(flat.isnan(), torch.nan, found).reshape(distance.shape)


def fitted_p_value(distance: Tensor, n: int) -> Tensor:
    """P(D >= distance) for samples of n from a normal whose moments were taken from the sample (Lilliefors)."""
    null = _simulated_distances(n).to(distance.device)
    at_least = SIMULATIONS - torch.searchsorted(null, distance.double().contiguous())
    return torch.where(distance.isnan(), torch.nan, (1 + at_least) / (1 + SIMULATIONS))


def critical_distance(n: int, level: float = 0.05) -> float:
    """The D whose `p_value` is `level`."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if float(p_value(torch.tensor([middle]), n)) > level:
            low = middle
        else:
            high = middle
    return high


def fitted_critical_distance(n: int, level: float = 0.05) -> float:
    """The smallest simulated D whose `fitted_p_value` is at most `level`."""
    return float(_simulated_distances(n)[math.ceil((1 - level) * (SIMULATIONS + 1))])


def _one_side(d: Tensor, n: int) -> Tensor:
    """P(D_n^+ >= d) = d sum_j C(n, j) (d + j/n)^(j-1) (1 - d - j/n)^(n-j) over j < n (1 - d): exact."""
    j = torch.arange(n, dtype=torch.float64, device=d.device)
    choose = math.lgamma(n + 1) - torch.lgamma(j + 1) - torch.lgamma(n - j + 1)
    above = d[:, None] + j / n
    logs = choose + (j - 1) * above.log() + (n - j) * (1 - above).log()
    return d * torch.logsumexp(torch.where(above < 1, logs, -torch.inf), dim=1).exp()


@lru_cache(maxsize=8)
def _simulated_distances(n: int) -> Tensor:
    """D of normal samples of n to the normal of their own moments, sorted, (SIMULATIONS,)."""
    samples = torch.randn(n, SIMULATIONS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return normal_distance(fitted(samples.sort(0).values)).sort().values
