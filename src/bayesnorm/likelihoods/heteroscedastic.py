"""Likelihoods whose noise level the network predicts together with the mean or the logits (Kendall and Gal, 2017)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..arguments import require_flag, require_seed, require_whole
from ..errors import InputError
from ..predictive import (
    GaussianPredictive,
    LaplaceNoise,
    NormalNoise,
    RegressionPredictive,
    at_least_single,
)
from .classes import ClassTargets, with_zero
from .real_targets import NoiseByScale, StudentTTargets
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


@dataclass(frozen=True)
class Heteroscedastic(NoiseByScale, ABC):
    """The base class of likelihoods with predicted noise."""

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
        """Return the logarithm of the noise's scale, within limits, given the output that predicts it."""

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of factors around the mean error in units of the predicted noise, one per target."""
        location, log_scale = self.split(f, torch.ones((), dtype=torch.float64))
        units = self.errors(location.mean(0), y) * (-log_scale.mean(0)).exp()
        mean = per_output(units.square(), self.axis, self.noise).sqrt()
        return mean * 0.1, mean * 10

    def split(self, f: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        location, output = halves(f, self.axis)
        factor = on_outputs("scale", self.noise if noise is None else noise, location, self.axis)
        return location, self._raised(self.log_scale_of(output) + factor.log())

    def _raised(self, log_scale: Tensor) -> Tensor:
        """Return the logarithm of a scale after the squared floor is added to the squared scale."""
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
            f"Half of the outputs along axis {self.axis} are noise levels. Use axis=1 for maps (batch, 2 D, h, w), and "
            "axis=-1 for sequences (batch, time, 2 D)."
        )


@dataclass(frozen=True)
class HeteroscedasticGaussian(Heteroscedastic):
    """Regression with predicted Gaussian noise: y ~ N(mean, scale^2 exp(s)).

    Of 2 D outputs, the first D are means, and the others are their log-variances s. `with_noise_head(model)` adds the
    second half to a network that predicts means only. `joined_outputs` converts a network with two heads.
    Log-variances between -30 and 30 are used unchanged; beyond, they approach -40 and 40. Standardise targets whose
    units need such values.

    Batch norm in training adds noise to the outputs, because batch statistics vary. The network learns this as noise
    in the data, so the predicted noise is too large where the real noise is small, and more so with small batches.

    Reference: Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer vision?", 2017.

    Args:
        scale: Factor of the predicted standard deviations: one number, or one per target. `calibrate` fits it on
            validation data. Default: 1.
        axis: The axis of outputs (batch, *out) with means and log-variances: 1 for (batch, 2 D) and for maps
            (batch, 2 D, h, w), -1 for sequences (batch, time, 2 D). Default: 1.
        floor: A constant noise level in the targets' units. Its square is added to the predicted variance. One number,
            or one per target. Default: 0.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    family = NormalNoise()

    def log_scale_of(self, output: Tensor) -> Tensor:
        return 0.5 * bounded(output, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND)

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        """Return the Gaussian with the mean and variance of y, where exp(s) has a log-normal distribution."""
        location, output = halves(mean[None], self.axis)
        epistemic, spread = halves(variance[None], self.axis)
        factor = on_outputs("scale", self.noise, location, self.axis)
        aleatoric = (2 * self._raised(self.log_scale_of(output + spread / 2) + factor.log())).exp()
        return GaussianPredictive(location[0], epistemic[0], aleatoric[0], self.missing)


@dataclass(frozen=True)
class HeteroscedasticLaplace(Heteroscedastic):
    """Regression with predicted Laplace noise of scale b, times `scale`.

    Of 2 D outputs, the first D are locations, and the others are their log b. Log-scales between -15 and 15 are used
    unchanged; beyond, they approach -20 and 20. `HeteroscedasticGaussian` describes the network and the arguments.

    Args:
        scale: Factor of the predicted scales: one number, or one per target. Default: 1.
        axis: The axis of outputs (batch, *out) with locations and log-scales. Default: 1.
        floor: A constant scale, whose square is added to the squared predicted scale. Default: 0.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    family = LaplaceNoise()

    def log_scale_of(self, output: Tensor) -> Tensor:
        return bounded(output, LOG_STD_LIMIT, LOG_STD_BOUND)


@dataclass(frozen=True)
class HeteroscedasticStudentT(Heteroscedastic, StudentTTargets):
    """Regression with predicted Student's t noise, which is robust against outliers.

    Of 2 D outputs, the first D are locations, and the others are logarithms of squared scales. The same network can be
    used with `HeteroscedasticGaussian`; with many degrees of freedom, both likelihoods agree.

    Args:
        df: Degrees of freedom, at least 1.1. Up to 2, the variance is infinite. Default: 4.
        scale: Factor of the predicted scales: one number, or one per target. Default: 1.
        axis: The axis of outputs (batch, *out) with locations and log-scales. Default: 1.
        floor: A constant scale, whose square is added to the squared predicted scale. Default: 0.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    df: float = 4.0

    def log_scale_of(self, output: Tensor) -> Tensor:
        return 0.5 * bounded(output, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND)


def halves(f: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Split outputs (n, batch, *out) into two halves along an axis of (batch, *out)."""
    position = output_axis(f, axis)
    if f.shape[position] % 2 or not f.shape[position]:
        raise InputError(
            f"Outputs of shape {tuple(f.shape[1:])} have {f.shape[position]} entries along axis {axis}, but an even "
            "number is needed: means, then as many noise levels. with_noise_head(model) adds the noise levels."
        )
    first, second = f.chunk(2, dim=position)
    return first, second


# Maximum count of noisy logits that are in memory at once, unless a single sample has more.
BLOCK_NUMBERS = 2**20

# Maximum number of noise samples. More would not change the result noticeably.
MOST_SAMPLES = 2**16


@dataclass(frozen=True)
class LogitNoise(ClassTargets):
    """Classification with predicted noise of the logits.

    p(y) is the mean over noise e ~ N(0, 1) of softmax((f + exp(s / 2) e) / temperature). Of 2 C outputs along the first
    output axis, the first C are logits f, and the others are their log-variances s. With `per_class=False` there are
    C + 1 outputs; the last is one log-variance for all logits. Two outputs (a logit and its log-variance) are a binary
    classifier. Further axes are pixels. Log-variances have the limits of `HeteroscedasticGaussian`.

    Reference: Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer vision?", 2017.

    Args:
        temperature: Divisor of the logits. Above 1 it softens the probabilities, below 1 it sharpens them. `calibrate`
            fits it. Default: 1.
        samples: Number of noise samples in the mean. They are evenly spread (a scrambled Sobol sequence) and the same
            for every example, pixel and posterior sample, so equal outputs give equal probabilities. Default: 64.
        per_class: Whether every class has its own log-variance. Default: True.
        seed: Seed of the noise samples. Default: 0.
        ignore_index: The class number, such as -100, that marks a missing target. Missing targets do not count.
            Default: None, no target is missing.
    """

    least_outputs: ClassVar[int] = 2

    samples: int = 64
    per_class: bool = field(default=True, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("samples", self.samples, 1, MOST_SAMPLES)
        require_seed(self.seed)
        require_flag("per_class", self.per_class)

    def log_probs(self, f: Tensor, temperature: Tensor) -> Tensor:
        logits, std = self._split(f)
        noise = _standard_noise(self.samples, logits.shape[2], self.seed).to(logits)
        noise = noise.view(*noise.shape[:1], 1, 1, *noise.shape[1:], *[1] * (logits.dim() - 3))
        total: Tensor | None = None
        for part in noise.split(max(1, BLOCK_NUMBERS // max(1, logits.numel()))):
            log_prob = torch.logsumexp(torch.log_softmax((logits + std * part) / temperature, dim=3), dim=0)
            total = log_prob if total is None else torch.logaddexp(total, log_prob)
        assert total is not None
        return total - math.log(self.samples)

    def _split(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits and the standard deviations of their noise, both (n, batch, class, *pixels)."""
        outputs = f.shape[2]
        if outputs < 2 or (self.per_class and outputs % 2):
            raise InputError(
                f"The number of outputs per example is {outputs}, but with per_class={self.per_class} it must be "
                + ("even (logits, then as many log-variances)." if self.per_class else "at least 2.")
                + " with_noise_head(model) adds the missing outputs."
            )
        logits, log_variance = f.split(outputs // 2 if self.per_class else [outputs - 1, 1], dim=2)
        std = (0.5 * bounded(log_variance, 2 * LOG_STD_LIMIT, 2 * LOG_STD_BOUND)).exp()
        if logits.shape[2] == 1:  # the logit of class 0 is 0, without noise
            return with_zero(logits), with_zero(std)
        return logits, std


@lru_cache(maxsize=16)
def _standard_noise(samples: int, classes: int, seed: int) -> Tensor:
    """Return evenly spread standard normal numbers, (samples, classes)."""
    uniform = torch.quasirandom.SobolEngine(classes, scramble=True, seed=seed).draw(samples, dtype=torch.float64)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))
