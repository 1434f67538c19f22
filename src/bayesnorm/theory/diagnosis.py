"""The results of `diagnose`: tests of normality and independence by unit, layer and batch size.

The tests of normality are Kolmogorov-Smirnov tests, for many units at once. The distance D is the largest gap between
the distribution function of a sample of size n and that of a normal. Its p-value depends on how the normal was chosen:

- If its mean and standard deviation were known beforehand, D has Kolmogorov's distribution, which SciPy computes
  exactly for any n.
- If they were estimated from the same sample, D is much smaller, and the p-value above is far too large. The correct
  one (Lilliefors 1967) has no formula; it is simulated here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Self

import scipy
import torch
from torch import Tensor

from ..errors import BayesNormError
from ..words import ShortRepr

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


@dataclass(frozen=True, eq=False)
class LayerDiagnosis:
    """One batch-norm layer: its name, and tests of its units' batch means and batch standard deviations."""

    name: str
    mean: Normality
    std: Normality


@dataclass(frozen=True, eq=False)
class Dependence:
    """Correlations of all units' batch means and batch standard deviations over the same S batches.

    Args:
        layers: Mean absolute correlation of two statistics of one layer (diagonal) or of two layers, (L, L).
        chance: The same for independent statistics and S batches.
        off_diagonal: The share of the sum of squared correlations that is between different statistics.
        off_diagonal_chance: The same share for independent statistics.
    """

    layers: Tensor = field(repr=False)
    chance: float
    off_diagonal: float
    off_diagonal_chance: float

    @classmethod
    def from_parts(cls, parts: list[Tensor]) -> Self:
        """Correlate the statistics of all layers, each (S, any number); constant columns are left out."""
        units = [unit_columns(part) for part in parts]
        batches = len(parts[0])
        layers = torch.full((len(units), len(units)), torch.nan, dtype=torch.float64)
        for i, first in enumerate(units):
            for j, second in enumerate(units[: i + 1]):
                total, pairs = (first.T @ second).abs().sum(), first.shape[1] * second.shape[1]
                if i == j:
                    total, pairs = total - first.shape[1], pairs - first.shape[1]
                if pairs:
                    layers[i, j] = layers[j, i] = total / pairs
        every = torch.cat(units, dim=1)
        count = every.shape[1]
        # The squared correlations have the same sum as the squares of the far smaller (S, S) Gram matrix.
        squares = float((every @ every.T).square().sum())
        # E|r| of independent normal columns, for which E r^2 = 1 / (S - 1).
        chance = float(scipy.special.beta((batches - 1) / 2, 0.5)) / math.pi
        return cls(
            layers=layers,
            chance=chance,
            off_diagonal=1 - count / squares if count else math.nan,
            off_diagonal_chance=(count - 1) / (count + batches - 2) if count else math.nan,
        )

    @property
    def within(self) -> float:
        """Mean absolute correlation within a layer, averaged over layers."""
        return float(self.layers.diagonal().nanmean())

    @property
    def between(self) -> float:
        """Mean absolute correlation between layers, averaged over pairs of layers; NaN for one layer."""
        rows, columns = torch.tril_indices(len(self.layers), len(self.layers), offset=-1)
        return float(self.layers[rows, columns].nanmean())


@dataclass(frozen=True, eq=False)
class BatchSizeDiagnosis:
    """All results for one batch size.

    Args:
        batch_size: The batch size M.
        rows: The number N of training examples.
        batches: The number S of batches.
        layers: Results for every layer, in running order.
        dependence: Correlations of the statistics.
        variance_lost: Share of the outputs' variance that is lost if every statistic is sampled independently;
            negative if the variance grows.
    """

    batch_size: int
    rows: int
    batches: int
    layers: tuple[LayerDiagnosis, ...] = field(repr=False)
    dependence: Dependence
    variance_lost: float

    @property
    def without_replacement(self) -> float:
        """Variance of a batch mean relative to theory, as no example is in a batch twice: (N - M) / (N - 1)."""
        return (self.rows - self.batch_size) / (self.rows - 1)

    def layer(self, name: str) -> LayerDiagnosis:
        """Return the results for the layer with this name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        names = ", ".join(repr(layer.name) for layer in self.layers)
        raise BayesNormError(f"name must be a diagnosed layer ({names}), got {name!r}.")

    def table(self) -> str:
        """Return a table with two lines per layer, and then the results for all layers, as text."""
        width = max(24, *(len(layer.name) for layer in self.layers))
        lines = [
            f"Batch size {self.batch_size}: {self.batches} batches from {self.rows} training examples",
            f"{'':{width}}               rejected at 5 %    median over units, vs. theory",
            f"{'layer':{width}}  units  stat.  theory  fitted   distance  variance   shift",
        ]
        for layer in self.layers:
            for name, diagnosis in (("mean", layer.mean), ("std", layer.std)):
                lines.append(
                    f"{layer.name if name == 'mean' else '':{width}}  {diagnosis.units:5d}  {name:5}  "
                    f"{_share_text(diagnosis.rejected):>6}  {_share_text(diagnosis.fitted_rejected):>6}  "
                    f"{_median(diagnosis.distance):9.3f}  "
                    f"{_median(diagnosis.variance_ratio):8.2f}  {_median(diagnosis.shift):+6.2f}"
                )
        critical = critical_distance(self.batches, LEVEL)
        lines += [
            f"{'if theory holds':{width}}               {_share_text(LEVEL):>6}  {_share_text(LEVEL):>6}    "
            f"< {critical:.3f}      1.00   +0.00",
            f"Variance of batches sampled without replacement / theory: {self.without_replacement:.2f}",
            f"Mean |correlation|: {self.dependence.within:.2f} within layers"
            + (f", {self.dependence.between:.2f} between layers" if len(self.layers) > 1 else "")
            + f" (if independent: {self.dependence.chance:.2f})",
            f"Share of squared correlations between different statistics: {self.dependence.off_diagonal:.0%} "
            f"(if independent: {self.dependence.off_diagonal_chance:.0%})",
            f"Sampling every statistic independently would {'lose' if not self.variance_lost < 0 else 'add'} "
            f"{abs(self.variance_lost):.0%} of the outputs' variance",
        ]
        return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(ShortRepr):
    """Results of `diagnose` by batch size; `print` shows the table.

    Args:
        sizes: One entry per batch size, in the order of `batch_sizes`.
    """

    sizes: tuple[BatchSizeDiagnosis, ...]

    def at(self, batch_size: int | None = None) -> BatchSizeDiagnosis:
        """Return the results for a batch size; None works if there is only one."""
        if batch_size is None and len(self.sizes) == 1:
            return self.sizes[0]
        for diagnosis in self.sizes:
            if diagnosis.batch_size == batch_size:
                return diagnosis
        sizes = ", ".join(str(diagnosis.batch_size) for diagnosis in self.sizes)
        raise BayesNormError(f"batch_size must be a diagnosed batch size ({sizes}), got {batch_size!r}.")

    def table(self) -> str:
        """Return one table per batch size, as text."""
        return "\n\n".join(diagnosis.table() for diagnosis in self.sizes)

    __str__ = table


def unit_columns(values: Tensor) -> Tensor:
    """Return the columns that vary, with mean 0 and length 1, so that their inner products are correlations."""
    centred = values.double() - values.double().mean(0)
    length = torch.linalg.vector_norm(centred, dim=0)
    varies = length > 0  # False for NaN
    return centred[:, varies] / length[varies]


def _median(values: Tensor) -> float:
    return float(values.nanmedian())


def _share_text(share: float) -> str:
    """Return a share as text for a table; a dash if no unit varies."""
    return "-" if math.isnan(share) else f"{share:.0%}"
