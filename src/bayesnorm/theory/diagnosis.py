"""The findings of `diagnose`: how normal and how independent batch statistics are, by unit, layer and batch size."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Self

import scipy
import torch
from torch import Tensor

from ..arguments import require_seed, require_whole
from ..errors import BayesNormError
from . import kolmogorov_smirnov as ks

# The p-value below which a unit counts as rejected.
LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class Normality:
    """Tests of how normal one statistic (batch mean or standard deviation) of a layer's C units is over S batches.

    Two normals are looked at: that of theory, with the central limit theorem's mean and variance, and that fitted to
    the S values themselves. Units whose statistic never varies hold NaN, and count nowhere.

    Args:
        standardised: (value - theory's mean) / theory's standard deviation, batch by batch, (S, C).
        distance: Kolmogorov-Smirnov distance to the normal of theory, (C,).
        p_value: Its p-value, valid because theory's moments do not come from these batches, (C,).
        fitted_distance: Distance to the fitted normal, (C,); it only sees the shape.
        fitted_p_value: Its p-value, by Lilliefors' distribution and not by Kolmogorov's, (C,).
    """

    standardised: Tensor = field(repr=False)
    distance: Tensor = field(repr=False)
    p_value: Tensor = field(repr=False)
    fitted_distance: Tensor = field(repr=False)
    fitted_p_value: Tensor = field(repr=False)

    @classmethod
    def of(cls, standardised: Tensor) -> Self:
        """Test standardised values, (S, C)."""
        standardised = standardised.double()
        values = standardised.sort(dim=0).values
        distance, fitted_distance = ks.normal_distance(values), ks.normal_distance(ks.fitted(values))
        return cls(
            standardised=standardised,
            distance=distance,
            p_value=ks.p_value(distance, len(values)),
            fitted_distance=fitted_distance,
            fitted_p_value=ks.fitted_p_value(fitted_distance, len(values)),
        )

    @property
    def units(self) -> int:
        """Number of units that vary."""
        return int((~self.p_value.isnan()).sum())

    @property
    def rejected(self) -> float:
        """Share of units that theory's normal is rejected for; 0.05 is expected where it holds for all."""
        return _share(self.p_value)

    @property
    def fitted_rejected(self) -> float:
        """Share of units that are rejected as normal of any mean and variance; 0.05 is expected where all are."""
        return _share(self.fitted_p_value)

    @property
    def shift(self) -> Tensor:
        """Mean of the values less theory's, in theory's standard deviations, (C,)."""
        return self.standardised.mean(0)

    @property
    def variance_ratio(self) -> Tensor:
        """Variance of the values over theory's, (C,)."""
        return self.standardised.var(0)

    def by_chance(self, fitted: bool = False, repeats: int = 200, seed: int = 0) -> float:
        """Return the share of rejected units that one layer in twenty exceeds where all units are as theory says.

        Units that move together are rejected together, so it is more than for independent units. Found by
        simulation of normal values that are correlated as these are.

        Args:
            fitted: Whether the test against a normal of any mean and variance is meant.
            repeats: Number of simulations.
            seed: Same seed, same number.
        """
        repeats = require_whole("repeats", repeats)
        # Columns of length 1, so that what is mixed from standard normals by their root is standard normal again.
        root, batches = torch.linalg.qr(_unit_columns(self.standardised)).R, len(self.standardised)
        bound = (ks.fitted_critical_distance if fitted else ks.critical_distance)(batches, LEVEL)
        generator, shares = torch.Generator().manual_seed(require_seed(seed)), []
        for _ in range(repeats):
            mixture = torch.randn(batches, len(root), dtype=torch.float64, generator=generator)
            values = (mixture @ root).sort(dim=0).values
            shares.append((ks.normal_distance(ks.fitted(values) if fitted else values) > bound).double().mean())
        return float(torch.stack(shares).quantile(1 - LEVEL))

    def quantiles(self, unit: int, fitted: bool = False) -> tuple[Tensor, Tensor]:
        """Return theoretical and empirical quantiles of a unit for a Q-Q plot, each (S,).

        Args:
            unit: Number of the unit in the layer.
            fitted: Whether to standardise by the values' own mean and standard deviation, and not by theory's.
        """
        batches, units = self.standardised.shape
        requirement = f"from 0 to {units - 1} for a layer of {units} units"
        unit = require_whole("unit", unit, 0, units - 1, requirement=requirement)
        chosen = self.standardised[:, unit : unit + 1].sort(dim=0).values
        empirical = ks.fitted(chosen) if fitted else chosen
        return normal_quantiles(batches), empirical[:, 0]


@dataclass(frozen=True, eq=False)
class LayerDiagnosis:
    """One batch-norm layer: its name, and the normality of its units' batch means and batch standard deviations."""

    name: str
    mean: Normality
    std: Normality


@dataclass(frozen=True, eq=False)
class Dependence:
    """Correlations of all units' batch means and batch standard deviations over the same S batches.

    Args:
        layers: Mean absolute correlation of two statistics of one layer (diagonal) or of two layers, (L, L).
        chance: The same for independent statistics, at that many batches.
        off_diagonal: The share of the squares of all correlations that is not a statistic's with itself.
        off_diagonal_chance: The same share for independent statistics.
    """

    layers: Tensor = field(repr=False)
    chance: float
    off_diagonal: float
    off_diagonal_chance: float

    @classmethod
    def of(cls, parts: list[Tensor]) -> Self:
        """Correlate the statistics of every layer, each (S, any number); columns that do not vary are left out."""
        units = [_unit_columns(part) for part in parts]
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
        # The squares of all correlations sum to those of the far smaller (S, S) Gram matrix.
        squares = float((every @ every.T).square().sum())
        # E|r| and E r^2 = 1 / (S - 1) of independent normal columns.
        chance = float(scipy.special.beta((batches - 1) / 2, 0.5)) / math.pi
        return cls(
            layers=layers,
            chance=chance,
            off_diagonal=1 - count / squares if count else math.nan,
            off_diagonal_chance=(count - 1) / (count + batches - 2) if count else math.nan,
        )

    @property
    def within(self) -> float:
        """Mean absolute correlation within a layer, over layers."""
        return float(self.layers.diagonal().nanmean())

    @property
    def between(self) -> float:
        """Mean absolute correlation of statistics of different layers, over pairs of layers; NaN for one layer."""
        rows, columns = torch.tril_indices(len(self.layers), len(self.layers), offset=-1)
        return float(self.layers[rows, columns].nanmean())


@dataclass(frozen=True, eq=False)
class BatchSizeDiagnosis:
    """All findings at one batch size.

    Args:
        batch_size: The batch size M.
        rows: N, the number of training rows that batches were drawn from.
        batches: S, the number of batches.
        layers: Findings about the layers, in running order.
        dependence: Correlations of the statistics.
        variance_lost: Share of the outputs' variance that independent samples of every statistic would lose; negative
            where they would add some.
    """

    batch_size: int
    rows: int
    batches: int
    layers: tuple[LayerDiagnosis, ...] = field(repr=False)
    dependence: Dependence
    variance_lost: float

    @property
    def without_replacement(self) -> float:
        """Variance of a batch's mean over theory's because a batch holds no row twice: (N - M) / (N - 1)."""
        return (self.rows - self.batch_size) / (self.rows - 1)

    def layer(self, name: str) -> LayerDiagnosis:
        """Return the findings about a layer by its name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        known = ", ".join(repr(layer.name) for layer in self.layers)
        raise BayesNormError(f"name: {name!r} was not diagnosed; {known} would work.")

    def table(self) -> str:
        """Return layers and statistics line by line, then what concerns all of them, as text."""
        width = max(24, *(len(layer.name) for layer in self.layers))
        lines = [
            f"batch size {self.batch_size}: {self.batches} batches out of {self.rows} training rows",
            f"{'':{width}}               rejected at 5 %    median over units, to theory",
            f"{'layer':{width}}  units  stat.  theory  fitted   distance  variance   shift",
        ]
        for layer in self.layers:
            for name, found in (("mean", layer.mean), ("std", layer.std)):
                lines.append(
                    f"{layer.name if name == 'mean' else '':{width}}  {found.units:5d}  {name:5}  "
                    f"{share_text(found.rejected):>6}  {share_text(found.fitted_rejected):>6}  "
                    f"{_median(found.distance):9.3f}  "
                    f"{_median(found.variance_ratio):8.2f}  {_median(found.shift):+6.2f}"
                )
        critical = ks.critical_distance(self.batches, LEVEL)
        lines += [
            f"{'where theory holds':{width}}               {share_text(LEVEL):>6}  {share_text(LEVEL):>6}    "
            f"< {critical:.3f}      1.00   +0.00",
            f"Variance of batches without replacement, to theory: {self.without_replacement:.2f}",
            f"Mean |correlation|: {self.dependence.within:.2f} within layers"
            + (f", {self.dependence.between:.2f} between" if len(self.layers) > 1 else "")
            + f"; {self.dependence.chance:.2f} if independent",
            f"Squared correlations off the diagonal: {self.dependence.off_diagonal:.0%}; "
            f"{self.dependence.off_diagonal_chance:.0%} if independent",
            f"Independent samples would {'lose' if not self.variance_lost < 0 else 'add'} "
            f"{abs(self.variance_lost):.0%} of the outputs' variance",
        ]
        return "\n".join(line.rstrip() for line in lines)


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Findings on how far batch statistics are as theory says, by batch size; `print` shows the table.

    Args:
        sizes: One entry per batch size, in the order they were asked for.
    """

    sizes: tuple[BatchSizeDiagnosis, ...]

    def at(self, batch_size: int | None = None) -> BatchSizeDiagnosis:
        """Return the findings at a batch size, which may be None where there is only one."""
        if batch_size is None and len(self.sizes) == 1:
            return self.sizes[0]
        for found in self.sizes:
            if found.batch_size == batch_size:
                return found
        known = ", ".join(str(found.batch_size) for found in self.sizes)
        raise BayesNormError(f"batch_size: {batch_size!r} was not diagnosed; {known} would work.")

    def table(self) -> str:
        """Return a readable table per batch size, as text."""
        return "\n\n".join(found.table() for found in self.sizes)

    def __str__(self) -> str:
        return self.table()


def normal_quantiles(n: int) -> Tensor:
    """Return the quantiles of the standard normal at (i - 1/2) / n, (n,)."""
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)


def _unit_columns(values: Tensor) -> Tensor:
    """Return the columns that vary, with mean 0 and length 1: their inner products are correlations."""
    centred = values.double() - values.double().mean(0)
    length = torch.linalg.vector_norm(centred, dim=0)
    kept = length > 0  # False for NaN
    return centred[:, kept] / length[kept]


def _share(p_value: Tensor) -> float:
    """Return the share of units that vary and are rejected."""
    known = p_value[~p_value.isnan()]
    return float((known < LEVEL).double().mean())


def _median(values: Tensor) -> float:
    return float(values.nanmedian())


def share_text(share: float) -> str:
    """Write a share for a table; a dash where no unit varies."""
    return "-" if math.isnan(share) else f"{share:.0%}"
