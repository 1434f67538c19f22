"""Quantiles of units for Q-Q plots, and the share of units that are rejected by chance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bayesnorm.theory import Normality, diagnosis as ks
from bayesnorm.theory.diagnosis import LEVEL, unit_columns


def normal_quantiles(n: int) -> Tensor:
    """Return the quantiles of the standard normal at (i - 1/2) / n for i = 1 ... n, (n,)."""
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)


def unit_quantiles(normality: Normality, unit: int, fitted: bool = False) -> Tensor:
    """Return the quantiles of a unit's standardised values over batches, (S,).

    Args:
        normality: The tests of one statistic of a layer.
        unit: Number of the unit in the layer.
        fitted: True to standardise by the mean and standard deviation of the values, False by the theory's.
    """
    values = normality.standardised[:, unit : unit + 1].sort(dim=0).values
    return (ks.fitted(values) if fitted else values)[:, 0]


def critical_distance(n: int, fitted: bool = False, level: float = LEVEL) -> float:
    """Return the distance whose p-value is `level`; for a fitted normal, the smallest simulated one."""
    if not fitted:
        return ks.critical_distance(n, level)
    return float(ks.simulated_distances(n)[math.ceil((1 - level) * (ks.SIMULATIONS + 1))])


def rejected_by_chance(normality: Normality, fitted: bool = False, repeats: int = 200, seed: int = 0) -> float:
    """Return the share of rejected units that one layer in twenty exceeds by chance if the theory holds.

    Correlated units are rejected together, so it is larger than for independent units. It comes from simulations of
    normal values with the same correlations.

    Args:
        normality: The tests of one statistic of a layer.
        fitted: True for the test against the fitted normal, False for the theory's.
        repeats: Number of simulations.
        seed: Seed of the simulations.
    """
    # Columns of length 1, so that mixing standard normals with their root gives standard normals.
    root, batches = torch.linalg.qr(unit_columns(normality.standardised)).R, len(normality.standardised)
    bound, generator, shares = critical_distance(batches, fitted), torch.Generator().manual_seed(seed), []
    for _ in range(repeats):
        mixture = torch.randn(batches, len(root), dtype=torch.float64, generator=generator)
        values = (mixture @ root).sort(dim=0).values
        shares.append((ks.normal_distance(ks.fitted(values) if fitted else values) > bound).double().mean())
    return float(torch.stack(shares).quantile(1 - LEVEL))
