"""Likelihoods whose noise the network predicts beside the mean (Kendall and Gal 2017)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import GaussianPredictive, RegressionPredictive
from ..predictive.base import at_least_single
from ..predictive.noise import LaplaceNoise, NormalNoise
from ..predictive.student_t import StudentTNoise
from .real_targets import NoiseByScale
from .scales import (
    LOG_STD_BOUND,
    LOG_STD_LIMIT,
    bounded,
    on_outputs,
    output_axis,
    per_output,
    positive_numbers,
    require_moderate,
)
from .student_t import required_df


@dataclass(frozen=True)
class Heteroscedastic(NoiseByScale, ABC):
    """The base of likelihoods with predicted noise."""

    least_outputs: ClassVar[int] = 2

    scale: float | tuple[float, ...] = 1.0
    axis: int = field(default=1, kw_only=True)
    floor: float | tuple[float, ...] = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.floor != 0.0:
            object.__setattr__(self, "floor", positive_numbers("floor", self.floor))

    @abstractmethod
    def log_scale_of(self, output: Tensor) -> Tensor:
        """Return the logarithm of the noise's scale, kept within limits, from the output that predicts it."""

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of factors about the mean error in units of the predicted noise, one per output of several."""
        location, log_scale = self.split(f, torch.ones((), dtype=torch.float64))
        units = self.errors(location.mean(0), y) * (-log_scale.mean(0)).exp()
        mean = per_output(units.square(), self.axis, self.noise).sqrt()
        return mean * 0.1, mean * 10

    def split(self, f: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        location, output = halves(f, self.axis)
        factor = on_outputs("scale", self.noise if noise is None else noise, location, self.axis)
        return location, self._raised(self.log_scale_of(output) + factor.log())

    def _raised(self, log_scale: Tensor) -> Tensor:
        """Return the logarithm of a scale whose square the floor's is added to."""
        if self.floor == 0.0:
            return log_scale
        floor = on_outputs("floor", self.floor, log_scale, self.axis).log()
        return 0.5 * torch.logaddexp(2 * log_scale, (2 * floor).expand_as(log_scale))

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        require_moderate("scale", self.scale, at_least_single(f).dtype, room=LOG_STD_BOUND)
        return super().predictive(f, weights)

    def target_columns(self, outputs: int) -> int:
        return outputs // 2

    def _hint(self, y: Tensor, location: Tensor) -> str:
        return (
            f"Half of the outputs along axis {self.axis} are noise: axis=1 is for maps (batch, 2 D, h, w), axis=-1 for "
            "sequences (batch, time, 2 D)."
        )


@dataclass(frozen=True)
class HeteroscedasticGaussian(Heteroscedastic):
    """y ~ N(mean, scale^2 exp(s)): of 2 D outputs the first D are means, the others their log-variances s.

    `with_noise_head(model)` makes such a network of one that predicts means alone, and `joined_outputs` of one with two
    heads. Log-variances between -30 and 30 are taken as they are; beyond, they come close to -40 and 40. Targets in
    units of such a size want to be standardised.

    Training with batch norm adds the fluctuation of batch statistics to the outputs, which the head learns as if it
    were noise in the data: where that is small, it says too much of it, the more the smaller the batches are.

    Args:
        scale: Factor of the predicted standard deviations: one number, or one per target. `calibrate` finds it on
            validation data.
        axis: The axis of outputs (batch, *out) that holds means and log-variances: 1, as in (batch, 2 D) and in maps
            (batch, 2 D, h, w), or -1 for sequences (batch, time, 2 D).
        floor: Noise that is there whatever the network says, in the targets' units: its square is added to that of the
            predicted one. One number, or one per target; 0 for none.
        missing: Whether NaN stands for a missing target, which then counts for nothing.
    """

    family = NormalNoise()

    def log_scale_of(self, output: Tensor) -> Tensor:
        return 0.5 * bounded(output, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND)

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        """Return the Gaussian with the mean and variance of y, where exp(s) is log-normal."""
        location, output = halves(mean[None], self.axis)
        epistemic, spread = halves(variance[None], self.axis)
        factor = on_outputs("scale", self.noise, location, self.axis)
        aleatoric = (2 * self._raised(self.log_scale_of(output + spread / 2) + factor.log())).exp()
        return GaussianPredictive(location[0], epistemic[0], aleatoric[0], self.missing)


@dataclass(frozen=True)
class HeteroscedasticLaplace(Heteroscedastic):
    """Laplace noise of scale b, times `scale`: of 2 D outputs the first D are locations, the others their log b.

    Log-scales between -15 and 15 are taken as they are; beyond, they come close to -20 and 20. See
    `HeteroscedasticGaussian` for the network and for the arguments.

    Args:
        scale: Factor of the predicted scales: one number, or one per target.
        axis: The axis of outputs (batch, *out) that holds locations and log-scales.
        floor: The least scale, 0 for none.
        missing: Whether NaN stands for a missing target, which then counts for nothing.
    """

    family = LaplaceNoise()

    def log_scale_of(self, output: Tensor) -> Tensor:
        return bounded(output, LOG_STD_LIMIT, LOG_STD_BOUND)


@dataclass(frozen=True)
class HeteroscedasticStudentT(Heteroscedastic):
    """Student's t noise with `df` degrees of freedom: of 2 D outputs the first D are locations, the others log-scales.

    The outputs beside locations are logarithms of squared scales, as those of `HeteroscedasticGaussian` are of
    variances: the same network serves both, and with many degrees of freedom both say the same.

    Args:
        df: Degrees of freedom, from 1.1. The variance is infinite up to 2.
        scale: Factor of the predicted scales: one number, or one per target.
        axis: The axis of outputs (batch, *out) that holds locations and log-scales.
        floor: The least scale, 0 for none.
        missing: Whether NaN stands for a missing target, which then counts for nothing.
    """

    df: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "df", required_df(self.df))

    @property
    def family(self) -> StudentTNoise:
        return StudentTNoise(self.df)

    def log_scale_of(self, output: Tensor) -> Tensor:
        return 0.5 * bounded(output, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND)


def halves(f: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Cut outputs (n, batch, *out) in two along an axis of (batch, *out)."""
    position = output_axis(f, axis)
    if f.shape[position] % 2 or not f.shape[position]:
        raise InputError(
            f"f: {f.shape[position]} outputs along axis {axis} of {tuple(f.shape[1:])}; an even number, the first half "
            "means and the second their noise, would work: with_noise_head(model) makes such a network."
        )
    first, second = f.chunk(2, dim=position)
    return first, second
