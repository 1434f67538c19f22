"""What networks of a table learn: real targets or classes, the loss of a row, and units.

Networks of one fold learn targets in units of that fold's training rows. Folds are compared in standard units (those of
all training rows), in which outputs of several kinds weigh the same; what users see is in the targets' own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ..errors import InputError
from ..likelihoods import Categorical, Gaussian, HeteroscedasticGaussian, Likelihood
from ..likelihoods.heteroscedastic import Heteroscedastic
from ..metrics import crps_points, nll, rmse
from ..nets import Rescaled
from ..predictive import ClassificationPredictive, RegressionPredictive
from ..stacked import RowLoss, half_squared_error
from .training_losses import ClassNLL, HalfSquaredError, NormalCrps

# Least temperature of classes: where no held-out row is wrong, the coldest would always be best.
LEAST_TEMPERATURE = 0.3

# Size up to which targets are taken; their squares have to be numbers too.
LARGEST_TARGET = 1e100

Affine = tuple[Tensor, Tensor]
"""A mean and a standard deviation for each column, as a unit to measure in."""


@dataclass(frozen=True, eq=False)
class Targets(ABC):
    """Targets of N training rows.

    Args:
        values: Targets in standard units, (N, columns), or class numbers, (N,).
        weights: Weights of the rows with mean 1, (N,); None where all count the same.
    """

    values: Tensor
    weights: Tensor | None

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of outputs of a network."""

    @property
    @abstractmethod
    def likelihood(self) -> Likelihood:
        """Likelihood in standard units, its noise still open."""

    @property
    @abstractmethod
    def loss(self) -> RowLoss:
        """Loss of every row, for `train_stacked`, which gives it columns of `trained`."""

    @abstractmethod
    def tempered(self, f: Tensor, factor: float) -> Tensor:
        """Return outputs whose predicted noise, or temperature, is so many times as large."""

    @abstractmethod
    def points(self, f: Tensor) -> Tensor:
        """Return what outputs (..., rows, outputs) say without their noise: numbers, or probabilities."""

    @abstractmethod
    def squared_errors(self, points: Tensor, y: Tensor) -> Tensor:
        """Return the squared error of points (..., rows, columns), one for each target: (..., rows, targets)."""

    @abstractmethod
    def scales_of(self, rows: Tensor) -> Affine:
        """Return mean and standard deviation of the targets of some rows, in standard units."""

    @abstractmethod
    def outputs_in(self, unit: Affine) -> Affine:
        """Return what moves and multiplies outputs of a network that learned targets in `unit`: (shift, factor)."""

    @abstractmethod
    def own_units(self, unit: Affine) -> Affine:
        """Return a unit given in standard units as one in the targets' own."""

    @abstractmethod
    def in_own_units(self, likelihood: Likelihood) -> Likelihood:
        """Return a likelihood of standard units as one of the targets' own."""

    @abstractmethod
    def scores(self, predictive: Any, y: Tensor) -> Tensor:
        """Return the score of every row, lower is better, (rows, targets): CRPS of the mixture, or NLL of classes."""

    @abstractmethod
    def point_score(self, predictive: Any, y: Tensor) -> float:
        """Return how good predictions without uncertainty are: RMSE in the targets' own units, or NLL of classes."""

    @abstractmethod
    def in_own_scores(self, scores: Tensor) -> float:
        """Return mean scores of the targets in standard units, (targets,), as one number in the targets' own."""

    @property
    def columns(self) -> int:
        """Number of columns of the targets."""
        return 1 if self.values.dim() == 1 else self.values.shape[1]

    @property
    def trained(self) -> Tensor:
        """What networks learn from, (N, columns): targets, and behind them the weight where there are some."""
        values = self.values.float().view(len(self.values), -1)
        return values if self.weights is None else torch.cat([values, self.weights.float()[:, None]], 1)

    def in_units(self, network: nn.Module, unit: Affine) -> Rescaled:
        """Return a network that learned targets in `unit` as one that gives what `unit` is measured in, in float64."""
        none = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        return Rescaled(network.double(), *none, *self._own_outputs_in(unit)).eval()

    def _own_outputs_in(self, unit: Affine) -> Affine:
        """Return what moves and multiplies outputs that a likelihood in the targets' own units takes."""
        return self.outputs_in(unit)


@dataclass(frozen=True, eq=False)
class NumberTargets(Targets):
    """Targets that are numbers.

    Args:
        mean, std: Mean and standard deviation of each column, (columns,), in double precision.
        heteroscedastic: Whether networks predict the noise as well.
    """

    mean: Tensor
    std: Tensor
    heteroscedastic: bool

    @classmethod
    def of(cls, y: NDArray[np.float64], weights: Tensor | None, heteroscedastic: bool) -> NumberTargets:
        """Return the targets of a regression, given (N, columns) in their own units."""
        peak = np.abs(y).max(0)
        if (peak > LARGEST_TARGET).any():
            raise InputError(
                f"y: reaches {peak.max():g}, whose square is no number; up to {LARGEST_TARGET:g} would work."
            )
        part = y / np.where(peak > 0, peak, 1.0)
        mean, std = part.mean(0) * peak, part.std(0) * peak
        constant = np.flatnonzero(~((part.std(0) > 1e-12) & (std > 1 / LARGEST_TARGET)))
        if len(constant):
            which = f" in column {constant[0]}" if y.shape[1] > 1 else ""
            raise InputError(
                f"y: is {y[0, constant[0]]:g} in all {len(y)} rows{which}, or nearly so; targets that differ by more "
                "would work."
            )
        values = torch.from_numpy((y - mean) / std)
        return cls(values, weights, torch.from_numpy(mean), torch.from_numpy(std), heteroscedastic)

    @property
    def outputs(self) -> int:
        return self.columns * (1 + self.heteroscedastic)

    @property
    def likelihood(self) -> Likelihood:
        return HeteroscedasticGaussian() if self.heteroscedastic else Gaussian()

    @property
    def loss(self) -> RowLoss:
        if self.heteroscedastic:
            return NormalCrps(self.weights is not None)
        return half_squared_error if self.weights is None else HalfSquaredError(weighted=True)

    def tempered(self, f: Tensor, factor: float) -> Tensor:
        if not self.heteroscedastic:
            return f
        location, log_variance = f.chunk(2, -1)
        return torch.cat([location, log_variance + 2 * math.log(factor)], -1)

    def points(self, f: Tensor) -> Tensor:
        return f[..., : self.columns]

    def squared_errors(self, points: Tensor, y: Tensor) -> Tensor:
        return (points - y).square()

    def scales_of(self, rows: Tensor) -> Affine:
        std, mean = torch.std_mean(self.values[rows], dim=0, correction=0)
        return mean, torch.where(std > 1e-12, std, 1.0)

    def outputs_in(self, unit: Affine) -> Affine:
        mean, std = unit
        if not self.heteroscedastic:
            return mean, std
        return torch.cat([mean, 2 * std.log()]), torch.cat([std, torch.ones_like(std)])

    def _own_outputs_in(self, unit: Affine) -> Affine:
        """Leave the targets' deviation to the likelihood's factor: log-variances of any unit may pass their bounds."""
        shift, factor = self.outputs_in(unit)
        if self.heteroscedastic:
            shift = shift - torch.cat([torch.zeros_like(self.std), 2 * self.std.log()])
        return shift, factor

    def own_units(self, unit: Affine) -> Affine:
        return self.mean + self.std * unit[0], self.std * unit[1]

    def in_own_units(self, likelihood: Likelihood) -> Likelihood:
        if not isinstance(likelihood, Heteroscedastic):
            noise = likelihood.noise * self.std.square()
            return likelihood.with_noise(noise[0] if len(noise) == 1 else noise)
        factor = likelihood.noise * self.std
        found = likelihood.with_noise(factor[0] if len(factor) == 1 else factor)
        if likelihood.floor == 0.0:
            return found
        floor = torch.as_tensor(likelihood.floor, dtype=torch.float64) * self.std
        return replace(found, floor=tuple(floor.tolist()) if len(floor) > 1 else float(floor[0]))

    def scores(self, predictive: RegressionPredictive, y: Tensor) -> Tensor:
        return crps_points(predictive, y, form="mixture")

    def point_score(self, predictive: RegressionPredictive, y: Tensor) -> float:
        return float(rmse(self.in_own_predictive(predictive), self.in_own_values(y)))

    def in_own_values(self, y: Tensor) -> Tensor:
        """Return targets of standard units in their own."""
        return y * self.std + self.mean

    def in_own_predictive(self, predictive: RegressionPredictive) -> RegressionPredictive:
        """Return a predictive of standard units in the targets' own."""
        loc, scale = self.in_own_values(predictive.loc), predictive.scale * self.std
        return RegressionPredictive(loc, scale, noise=predictive.noise)

    def in_own_scores(self, scores: Tensor) -> float:
        return float((scores * self.std).mean())


@dataclass(frozen=True, eq=False)
class LabelTargets(Targets):
    """Targets that are class numbers.

    Args:
        classes: Number of classes.
    """

    classes: int

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def likelihood(self) -> Likelihood:
        return Categorical()

    @property
    def loss(self) -> RowLoss:
        return ClassNLL(self.weights is not None)

    def tempered(self, f: Tensor, factor: float) -> Tensor:
        return f / max(factor, LEAST_TEMPERATURE)

    def points(self, f: Tensor) -> Tensor:
        return torch.softmax(f, -1)

    def squared_errors(self, points: Tensor, y: Tensor) -> Tensor:
        return (points - one_hot(y, self.classes)).square().sum(-1, keepdim=True)

    def scales_of(self, rows: Tensor) -> Affine:
        return torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)

    def outputs_in(self, unit: Affine) -> Affine:
        return unit

    def own_units(self, unit: Affine) -> Affine:
        return unit

    def in_own_units(self, likelihood: Likelihood) -> Likelihood:
        return likelihood

    def scores(self, predictive: ClassificationPredictive, y: Tensor) -> Tensor:
        return -predictive.log_prob(y)[:, None]

    def point_score(self, predictive: ClassificationPredictive, y: Tensor) -> float:
        return float(nll(predictive, y))

    def in_own_scores(self, scores: Tensor) -> float:
        return float(scores.mean())
