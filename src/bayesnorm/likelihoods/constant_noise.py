"""Likelihoods of real targets with constant noise: Gaussian, Laplace (absolute errors) and Student's t (robust)."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ..predictive import GaussianPredictive, LaplaceNoise, NormalNoise, RegressionPredictive, at_least_single
from .real_targets import NoiseByScale, RealTargets, StudentTTargets
from .scales import as_numbers, on_outputs, per_output, positive_numbers, require_moderate


@dataclass(frozen=True)
class ConstantNoise(RealTargets, ABC):
    """The base class of likelihoods with constant noise: one scale, or one per output."""

    _name: ClassVar[str]
    """Name of the field with the noise."""

    _power: ClassVar[int] = 1
    """The power of the noise's scale that this field is."""

    @abstractmethod
    def _log_scale(self, noise: Tensor) -> Tensor:
        """Return the logarithm of the scale for this `noise`."""

    def split(self, f: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return f, on_outputs(self._name, self._log_scale(self.noise if noise is None else noise), f, self.axis)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        f = at_least_single(f)
        self._require_moderate(f)
        scale = on_outputs(self._name, self._log_scale(self.noise).exp(), f, self.axis)
        return RegressionPredictive(f, scale, weights, self.family, self.missing)

    def _require_moderate(self, f: Tensor) -> None:
        """Raise an error if the noise is too extreme for outputs of this dtype."""
        require_moderate(self._name, getattr(self, self._name), f.dtype, power=self._power)


class ConstantScale(NoiseByScale, ConstantNoise, ABC):
    """The base class of likelihoods with constant noise whose `noise` is the scale itself."""

    _name = "scale"

    _lowest_noise: ClassVar[float] = 0.1
    """The lower end of the search range of the scale, relative to the mean absolute error."""

    def _log_scale(self, noise: Tensor) -> Tensor:
        return noise.log()

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of scales around the mean absolute error, one per output if there are several."""
        error = per_output(self.errors(f.mean(0), y).abs(), self.axis, self.noise)
        return error * self._lowest_noise, error * 10


@dataclass(frozen=True)
class Gaussian(ConstantNoise):
    """Regression with constant Gaussian noise: y ~ N(f, 1 / precision), in the targets' units.

    Args:
        precision: Inverse noise *variance* (tau in the papers): one number, or one per entry of an output axis.
            Default: 1, as a plain squared-error loss assumes. For valid intervals, fit it with `calibrate` on
            validation data, or learn it together with the network (`LearnedNoise`).
        axis: The axis of outputs (batch, *out) that several precisions belong to: -1 for the last, 1 for the channels
            of maps (batch, D, h, w). Default: -1.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    precision: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "precision", positive_numbers("precision", self.precision))

    _name, _power = "precision", -2
    family = NormalNoise()

    @property
    def noise(self) -> Tensor:
        """The variance of the noise."""
        return 1 / torch.tensor(self.precision, dtype=torch.float64)

    def _log_scale(self, noise: Tensor) -> Tensor:
        return 0.5 * noise.log()

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of variances around the mean squared error, one per output if there are several.

        The lower end is 1 % of that error, where the ranges of the MCBN paper end. With less noise, CRPS can stay good
        if the samples vary enough, but the mixture has narrow peaks with almost no density between them.
        """
        mse = per_output(self.errors(f.mean(0), y).square(), self.axis, self.noise)
        return mse * 1e-2, mse * 1e2

    def with_noise(self, noise: Tensor) -> Self:
        return dataclasses.replace(self, precision=as_numbers(1 / noise.double()))

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        self._require_moderate(mean)
        noise = on_outputs("precision", self.noise, mean[None], self.axis)
        return GaussianPredictive(mean, variance, noise, self.missing)


@dataclass(frozen=True)
class Laplace(ConstantScale):
    """Regression with constant Laplace noise: p(y) = exp(-|y - f| / scale) / (2 scale), in the targets' units.

    Its variance is 2 scale^2. Its tails are heavier than a Gaussian's, so outliers affect the loss less. Use it for
    networks trained with absolute errors.

    Args:
        scale: Scale of the noise: one positive number, or one per entry of an output axis. Default: 1.
        axis: The axis of outputs (batch, *out) that several scales belong to: -1 for the last, 1 for the channels of
            maps. Default: -1.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    scale: float | tuple[float, ...] = 1.0

    family = LaplaceNoise()


@dataclass(frozen=True)
class StudentT(ConstantScale, StudentTTargets):
    """Robust regression: (y - f) / scale ~ Student's t with `df` degrees of freedom.

    The variance is scale^2 df / (df - 2). Beyond a few scales, an outlier has less influence the farther away it is.

    Args:
        df: Degrees of freedom, at least 1.1. Up to 2, the variance is infinite. Above 30, the noise is nearly Gaussian.
            Default: 4.
        scale: Scale of the noise in the targets' units: one positive number, or one per entry of an output axis.
            Default: 1.
        axis: The axis of outputs (batch, *out) that several scales belong to: -1 for the last, 1 for the channels of
            maps. Default: -1.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    df: float = 4.0
    scale: float | tuple[float, ...] = 1.0

    # Most of the mean absolute error may come from outliers.
    _lowest_noise = 0.02
