"""The targets of a table: numbers or classes, their loss, and their units.

The networks of a fold are trained on targets standardised by that fold's training rows. Folds are compared in standard
units (targets standardised by all training rows), in which several outputs have equal weight. Users see the original
units of the targets.
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
from ..likelihoods import Categorical, Gaussian, Heteroscedastic, HeteroscedasticGaussian, Likelihood
from ..metrics import crps_points, nll, rmse
from ..predictive import ClassificationPredictive, RegressionPredictive
from ..training import Rescaled
from .stacked import ClassNLL, HalfSquaredError, NormalCrps, RowLoss

# Smallest temperature; if all held-out rows are classified correctly, temperature 0 would always be best.
LEAST_TEMPERATURE = 0.3

# Largest accepted target, whose square must be finite too.
LARGEST_TARGET = 1e100

Affine = tuple[Tensor, Tensor]
"""The mean and standard deviation of each column, which define a unit."""


@dataclass(frozen=True, eq=False)
class Targets(ABC):
    """The targets of N training rows; units are those of class numbers, which have none, unless a subclass has others.

    Args:
        values: Targets in standard units, (N, columns), or class numbers, (N,).
        weights: Weights of the rows with mean 1, (N,); None for equal weights.
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
        """Likelihood in standard units, with its noise not chosen yet."""

    @property
    @abstractmethod
    def loss(self) -> RowLoss:
        """Loss of every row, for `train_stacked`, which calls it with columns of `trained`."""

    @abstractmethod
    def tempered(self, f: Tensor, factor: float) -> Tensor:
        """Return outputs with the predicted noise, or the temperature, multiplied by a factor."""

    @abstractmethod
    def points(self, f: Tensor) -> Tensor:
        """Return the point predictions of outputs, (..., rows, outputs): numbers, or probabilities."""

    @abstractmethod
    def squared_errors(self, points: Tensor, y: Tensor) -> Tensor:
        """Return the squared errors of point predictions, (..., rows, columns): (..., rows, targets)."""

    @abstractmethod
    def scores(self, predictive: Any, y: Tensor) -> Tensor:
        """Return the score of every row, (rows, targets): CRPS of the mixture, or NLL of classes; lower is better."""

    @abstractmethod
    def point_score(self, predictive: Any, y: Tensor) -> float:
        """Return the score of point predictions: RMSE in the original units, or NLL of classes."""

    @property
    def columns(self) -> int:
        """Number of columns of the targets."""
        return 1 if self.values.dim() == 1 else self.values.shape[1]

    @property
    def trained(self) -> Tensor:
        """The targets for training, (N, columns), followed by the weight if there are weights."""
        values = self.values.float().view(len(self.values), -1)
        return values if self.weights is None else torch.cat([values, self.weights.float()[:, None]], 1)

    def scales_of(self, rows: Tensor) -> Affine:
        """Return the mean and standard deviation of the targets of some rows, in standard units."""
        return torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)

    def outputs_in(self, unit: Affine) -> Affine:
        """Return the (shift, factor) that convert outputs of a network trained on targets in `unit`."""
        return unit

    def own_outputs_in(self, unit: Affine) -> Affine:
        """Return the (shift, factor) for a likelihood in the original units, given a unit of standard units."""
        return unit

    def in_own_units(self, likelihood: Likelihood) -> Likelihood:
        """Return a likelihood in standard units as a likelihood in the original units."""
        return likelihood

    def in_own_scores(self, scores: Tensor) -> float:
        """Return mean scores in standard units, (targets,), as one number in the original units."""
        return float(scores.mean())

    def in_own_values(self, y: Tensor) -> Tensor:
        """Return targets in standard units as targets in the original units."""
        return y

    def in_own_predictive(self, predictive: Any) -> Any:
        """Return a predictive in standard units as a predictive in the original units."""
        return predictive

    def in_units(self, network: nn.Module, unit: Affine) -> Rescaled:
        """Return a network trained on targets in `unit` as one that predicts in the original units, in float64."""
        identity = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
        return Rescaled(network.double(), *identity, *self.own_outputs_in(unit)).eval()


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
    def from_array(cls, y: NDArray[np.float64], weights: Tensor | None, heteroscedastic: bool) -> NumberTargets:
        """Return the targets of a regression, from values in the original units, (N, columns)."""
        peak = np.abs(y).max(0)
        if (peak > LARGEST_TARGET).any():
            raise InputError(
                f"y contains {peak.max():g}, but the largest accepted number is {LARGEST_TARGET:g}. Rescale y."
            )
        part = y / np.where(peak > 0, peak, 1.0)
        mean, std = part.mean(0) * peak, part.std(0) * peak
        constant = np.flatnonzero(~((part.std(0) > 1e-12) & (std > 1 / LARGEST_TARGET)))
        if len(constant):
            which = f" in column {constant[0]}" if y.shape[1] > 1 else ""
            raise InputError(
                f"y is {y[0, constant[0]]:g} in all {len(y)} rows{which}, or nearly so. Pass targets that differ."
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
        return (NormalCrps if self.heteroscedastic else HalfSquaredError)(weighted=self.weights is not None)

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

    def own_outputs_in(self, unit: Affine) -> Affine:
        """Leave the scale of the targets to the likelihood's factor, because log-variances have bounds."""
        shift, factor = self.outputs_in((self.mean + self.std * unit[0], self.std * unit[1]))
        if self.heteroscedastic:
            shift = shift - torch.cat([torch.zeros_like(self.std), 2 * self.std.log()])
        return shift, factor

    def in_own_units(self, likelihood: Likelihood) -> Likelihood:
        by_scale = isinstance(likelihood, Heteroscedastic)
        noise = likelihood.noise * (self.std if by_scale else self.std.square())
        scaled = likelihood.with_noise(noise[0] if len(noise) == 1 else noise)
        if not isinstance(scaled, Heteroscedastic) or scaled.floor == 0.0:
            return scaled
        floor = torch.as_tensor(scaled.floor, dtype=torch.float64) * self.std
        return replace(scaled, floor=tuple(floor.tolist()) if len(floor) > 1 else float(floor[0]))

    def scores(self, predictive: RegressionPredictive, y: Tensor) -> Tensor:
        return crps_points(predictive, y, form="mixture")

    def point_score(self, predictive: RegressionPredictive, y: Tensor) -> float:
        return float(rmse(self.in_own_predictive(predictive), self.in_own_values(y)))

    def in_own_values(self, y: Tensor) -> Tensor:
        return y * self.std + self.mean

    def in_own_predictive(self, predictive: RegressionPredictive) -> RegressionPredictive:
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

    def scores(self, predictive: ClassificationPredictive, y: Tensor) -> Tensor:
        return -predictive.log_prob(y)[:, None]

    def point_score(self, predictive: ClassificationPredictive, y: Tensor) -> float:
        return float(nll(predictive, y))
