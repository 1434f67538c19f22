"""Kolmogorov-Smirnov tests of normality, for many units at once, and what they find for one statistic.

The distance D is the largest gap between the distribution function of a sample of size n and that of a normal. Its
p-value depends on how the normal was chosen:

- If its mean and standard deviation were known beforehand, D has Kolmogorov's distribution, which SciPy computes
  exactly for any n.
- If they were estimated from the same sample, D is much smaller, and the p-value above is far too large. The correct
  one (Lilliefors 1967) has no formula; it is simulated here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

import scipy
import torch
from torch import Tensor

# The p-value below which a unit counts as rejected.
LEVEL = 0.05

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


@dataclass(frozen=True, eq=False)
class Normality:
    """Tests of normality of one statistic (batch mean or batch standard deviation) of C units over S batches.

    There are two tests: against the theory's normal, with the mean and variance of the central limit theorem, and
    against the normal fitted to the S values. Units whose statistic never varies have NaN and are not counted.

    Args:
        standardised: (value - theory's mean) / theory's standard deviation for every batch, (S, C).
        distance: Kolmogorov-Smirnov distance to the theory's normal, (C,).
        p_value: Its p-value, (C,); valid because the theory's moments do not come from these batches.
        fitted_distance: Distance to the fitted normal, (C,); it depends on the shape only.
        fitted_p_value: Its p-value by Lilliefors' distribution, (C,).
    """

    standardised: Tensor = field(repr=False)
    distance: Tensor = field(repr=False)
    p_value: Tensor = field(repr=False)
    fitted_distance: Tensor = field(repr=False)
    fitted_p_value: Tensor = field(repr=False)

    @classmethod
    def test(cls, standardised: Tensor) -> Self:
        """Test standardised values, (S, C)."""
        standardised = standardised.double()
        values = standardised.sort(dim=0).values
        distance, fitted_distance = normal_distance(values), normal_distance(fitted(values))
        return cls(
            standardised=standardised,
            distance=distance,
            p_value=p_value(distance, len(values)),
            fitted_distance=fitted_distance,
            fitted_p_value=fitted_p_value(fitted_distance, len(values)),
        )

    @property
    def units(self) -> int:
        """Number of units that vary."""
        return int((~self.p_value.isnan()).sum())

    @property
    def rejected(self) -> float:
        """Share of units for which the theory's normal is rejected; 0.05 is expected if the theory holds."""
        return _share(self.p_value)

    @property
    def fitted_rejected(self) -> float:
        """Share of units for which any normal is rejected; 0.05 is expected if all units are normal."""
        return _share(self.fitted_p_value)

    @property
    def shift(self) -> Tensor:
        """Mean of the values minus the theory's mean, in the theory's standard deviations, (C,)."""
        return self.standardised.mean(0)

    @property
    def variance_ratio(self) -> Tensor:
        """Variance of the values divided by the theory's variance, (C,)."""
        return self.standardised.var(0)


def _share(p_value: Tensor) -> float:
    """Return the share of rejected units among those that vary."""
    defined = p_value[~p_value.isnan()]
    return float((defined < LEVEL).double().mean())
