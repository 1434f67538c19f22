"""Likelihoods of real targets, y = location + scale * noise: base classes, and those with constant noise."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_flag, require_number
from ..errors import InputError
from ..predictive import (
    LEAST_DF,
    GaussianPredictive,
    LaplaceNoise,
    NoiseFamily,
    NormalNoise,
    RegressionPredictive,
    StudentTNoise,
    as_targets,
    at_least_single,
    observed_targets,
)
from .base import Likelihood
from .scales import (
    holds,
    like_outputs,
    on_outputs,
    per_output,
    plain_numbers,
    positive_numbers,
    require_axis,
    require_moderate,
)


@dataclass(frozen=True)
class RealTargets(Likelihood[RegressionPredictive], ABC):
    """The base class of likelihoods for real targets.

    Args:
        axis: The axis of outputs (batch, *out) that several targets lie along; 1 for channels. Default: -1.
        missing: Whether NaN marks a missing target. It adds nothing to the loss, and its log density and CRPS are 0.
            Default: False, NaN raises an error.
    """

    axis: int = field(default=-1, kw_only=True)
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_axis(self.axis)
        require_flag("missing", self.missing)

    @property
    @abstractmethod
    def family(self) -> NoiseFamily:
        """The family of the noise in standard form."""

    @abstractmethod
    def split(self, f: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Split outputs (n, batch, *out) into the location and the logarithm of the scale, which broadcasts to it."""

    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        f = at_least_single(f)
        location, log_scale = self.split(f[None], noise)
        location, log_scale = location[0], log_scale[0] if log_scale.dim() == location.dim() else log_scale
        target, present = self._targets(y, location)
        cost = log_scale - self.family.log_prob((target - location) * (-log_scale).exp())
        if present is not None:
            cost = torch.where(present, cost, 0)
        return cost.sum() / len(f)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        location, log_scale = self.split(at_least_single(f))
        return RegressionPredictive(location, log_scale.exp(), weights, self.family, self.missing)

    def target_columns(self, outputs: int) -> int:
        return outputs

    def errors(self, location: Tensor, y: Any) -> Tensor:
        """Return target minus location, (batch, *out), with NaN for missing targets."""
        target, present = observed_targets(y, location, self.missing)
        return target - location if present is None else torch.where(present, target - location, math.nan)

    def _targets(self, y: Any, location: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return targets in the shape of the outputs, and a mask of those that are present (None: all)."""
        y = y if isinstance(y, Tensor) else as_targets(y, location.device, location.dtype)
        try:
            target = like_outputs(y, location)
        except InputError as error:
            raise InputError(f"{error} {self._hint(y, location)}".rstrip()) from None
        missing = target.isnan()
        if self.missing:
            return torch.where(missing, location.detach().to(target.dtype), target), ~missing
        if holds(missing.any()):
            raise InputError(
                f"y has {int(missing.sum())} NaN among {y.numel()} values. Drop those rows, or pass missing=True to "
                f"{type(self).__name__}."
            )
        return target, None

    def _hint(self, y: Tensor, location: Tensor) -> str:
        """Return an additional sentence for errors about the shape of targets."""
        return ""


class NoiseByScale(RealTargets, ABC):
    """The base class of likelihoods whose noise is the field `scale`: a scale, or a factor of predicted scales."""

    if TYPE_CHECKING:
        scale: float | tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", positive_numbers("scale", self.scale))

    @property
    def noise(self) -> Tensor:
        """The scale of the noise, or the factor of the predicted scales."""
        return torch.tensor(self.scale, dtype=torch.float64)

    def with_noise(self, noise: Tensor) -> Self:
        changed: dict[str, Any] = {"scale": plain_numbers(noise)}
        return dataclasses.replace(self, **changed)


# Above this, the density of Student's t overflows.
LARGEST_DF = 1e9


class StudentTTargets(RealTargets, ABC):
    """The base class of likelihoods whose noise has the degrees of freedom `df`."""

    if TYPE_CHECKING:
        df: float

    def __post_init__(self) -> None:
        super().__post_init__()
        requirement = (
            f"a finite number from {LEAST_DF} (the mean exists only above 1) to {LARGEST_DF:g} (practically Gaussian)"
        )
        df = require_number("df", self.df, least=LEAST_DF, most=LARGEST_DF, requirement=requirement)
        object.__setattr__(self, "df", df)

    @property
    def family(self) -> StudentTNoise:
        return StudentTNoise(self.df)


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
        return dataclasses.replace(self, precision=plain_numbers(1 / noise.double()))

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
