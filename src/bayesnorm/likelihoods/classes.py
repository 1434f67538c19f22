"""Likelihoods of classes: the base class, with a temperature and missing targets, and the softmax of logits.

The temperature of `VarianceScaledCategorical` increases with the samples' disagreement about an example. A softmax is
more overconfident on some examples than on others, and the variance of the logits under the posterior helps to find
them:

    log T(x) = log(temperature) + slope z(x),
    z(x) = log(variance of the logits over samples, mean over classes), standardised, and clipped to 0 ... 2.

z(x) is 0 if the samples agree as much as on most examples, or if there is only one sample. T(x) is never below
`temperature`. Otherwise it would fall for noisy images, whose logits vary less although the network is less accurate.

Notes on `VarianceScaledCategorical`:
- `mean` and `std` belong to the effective batch size M' that they were fitted at; `calibrate` fits all four numbers. At
  a smaller M', samples disagree more, and all temperatures are higher.
- The temperature depends on all samples of a prediction, so one sample alone gets another temperature.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from ..arguments import as_whole, hold_plain_numbers, require_number, require_positive
from ..errors import BayesNormError, InputError
from ..predictive import ClassificationPredictive, as_targets, at_least_single
from .base import Likelihood
from .scales import beside, holds, require_moderate, same_places


@dataclass(frozen=True)
class ClassTargets(Likelihood[ClassificationPredictive], ABC):
    """A likelihood of classes, which lie along the first output axis. Further axes are pixels.

    Args:
        temperature: Divisor of the logits. Above 1 it softens the probabilities, below 1 it sharpens them. Default: 1.
        ignore_index: The class number, such as -100, that marks a missing target. It adds nothing to the loss, and its
            log probability is 0. Default: None, no target is missing.
    """

    temperature: float = 1.0
    ignore_index: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        object.__setattr__(self, "temperature", require_positive("temperature", self.temperature))
        ignored = self.ignore_index
        if ignored is not None and as_whole(ignored) is None:
            raise BayesNormError(f"ignore_index must be a whole number such as -100, got {ignored!r}.")

    @abstractmethod
    def log_probs(self, f: Tensor, temperature: Tensor) -> Tensor:
        """Return log probabilities (n, batch, class, *pixels) for outputs (n, batch, outputs, *pixels)."""

    @property
    def noise(self) -> Tensor:
        """The temperature."""
        return torch.tensor(self.temperature, dtype=torch.float64)

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return the search range of the temperature, from sharp to very soft.

        With several samples, the lower end is 0.5. At lower temperatures each sample becomes a nearly hard vote. A
        class without a vote then has probability 0, which a small validation set does not reveal.
        """
        return torch.tensor(0.05 if len(f) == 1 else 0.5, device=f.device), torch.tensor(20.0, device=f.device)

    def with_noise(self, noise: Tensor) -> Self:
        return dataclasses.replace(self, temperature=float(noise))

    def target_columns(self, outputs: int) -> int:
        return 1

    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        f = at_least_single(f if f.dim() > 1 else f.unsqueeze(-1))[None]
        log_probs = self.log_probs(f, beside(self.noise if noise is None else noise, f))[0]
        target, valid, ignored = self._targets(y, log_probs)
        cost = nll_loss(log_probs, target, reduction="none")
        cost = torch.where(valid, cost, math.nan)
        if ignored is not None:
            cost = torch.where(ignored, 0, cost)
        return cost.sum() / len(log_probs)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> ClassificationPredictive:
        if f.dim() < 3:
            if f.dim() != 2:
                raise InputError(f"f must have shape (n, batch, class, ...), got outputs of shape {tuple(f.shape)}.")
            f = f.unsqueeze(-1)
        f = at_least_single(f)
        require_moderate("temperature", self.temperature, f.dtype)
        return ClassificationPredictive(self.log_probs(f, beside(self.noise, f)), weights, self.ignore_index)

    def _targets(self, y: Any, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return class numbers (batch, *pixels), with 0 for invalid ones, and masks of valid and of missing targets."""
        shape, classes = (len(log_probs), *log_probs.shape[2:]), log_probs.shape[1]
        y = y if isinstance(y, Tensor) else as_targets(y, log_probs.device)
        if not same_places(y, log_probs[:, 0]):
            raise InputError(f"y has shape {tuple(y.shape)}. Pass whole class numbers of shape {shape}.")
        y = y.reshape(shape)
        valid = (y >= 0) & (y < classes)
        if y.is_floating_point():
            valid &= y == y.round()
        ignored = None if self.ignore_index is None else y == self.ignore_index
        bad = ~valid if ignored is None else ~(valid | ignored)
        if holds(bad.any()):
            raise InputError(
                f"y must be class numbers from 0 to {classes - 1}, but {int(bad.sum())} of {y.numel()} values are not, "
                f"such as {float(y[bad][0]):g}. If a number such as -100 marks missing targets, pass ignore_index=-100 "
                "to the likelihood."
            )
        return torch.where(valid, y, 0).long(), valid, ignored


@dataclass(frozen=True)
class Categorical(ClassTargets):
    """Classification: y ~ softmax(f / temperature) over the first output axis. Further axes are pixels.

    A network with one output per example (or pixel) is a binary classifier whose output is the logit of class 1.

    Args:
        temperature: Divisor of the logits. Above 1 it softens the probabilities, below 1 it sharpens them. Default: 1.
        ignore_index: The class number, such as -100, that marks a missing target. Missing targets do not count.
            Default: None, no target is missing.
    """

    def log_probs(self, f: Tensor, temperature: Tensor) -> Tensor:
        return torch.log_softmax(with_zero(f) / temperature, dim=2)


def with_zero(f: Tensor) -> Tensor:
    """Add a logit of 0 for class 0 before the single output (n, batch, 1, *pixels) of a binary classifier."""
    return torch.cat([torch.zeros_like(f), f], dim=2) if f.shape[2] == 1 else f


# Maximum of z, in standard deviations above the mean.
LARGEST_DISAGREEMENT = 2.0


@dataclass(frozen=True)
class VarianceScaledCategorical(Categorical):
    """Classification with an input-dependent temperature: y ~ softmax(f / T(x)), T(x) = temperature exp(slope z(x)).

    z(x) is the standardised log-variance of the logits over samples, so T(x) is higher where samples disagree.
    `calibrate` chooses this likelihood if it scores significantly better than a constant temperature.

    Args:
        temperature: Divisor of the logits where samples agree. Default: 1.
        slope: Increase of the log temperature per standard deviation of the log-variance. Default: 0, a constant
            temperature.
        mean, std: Mean and standard deviation of the logits' log-variance over examples. Default: 0 and 1.
        ignore_index: The class number, such as -100, that marks a missing target. Missing targets do not count.
            Default: None, no target is missing.
    """

    slope: float = field(default=0.0, kw_only=True)
    mean: float = field(default=0.0, kw_only=True)
    std: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(
            self, "slope", require_number("slope", self.slope, least=0, most=10, requirement="a number from 0 to 10")
        )
        object.__setattr__(self, "mean", require_number("mean", self.mean))
        object.__setattr__(self, "std", require_positive("std", self.std))

    @property
    def plain(self) -> Categorical:
        """The likelihood with the same temperature for all examples."""
        return Categorical(self.temperature, ignore_index=self.ignore_index)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> ClassificationPredictive:
        plain = super().predictive(f, weights)  # also checks the shape of the outputs
        if len(f) == 1 or not self.slope:
            return plain
        f = at_least_single(f if f.dim() > 2 else f.unsqueeze(-1))
        return self._tempered(f, weights, log_logit_variance(f, plain.weights))

    @property
    def uses_sample_variance(self) -> bool:
        return self.slope > 0

    def part_predictive(self, f: Tensor, weights: Tensor | None, variance: Tensor | None) -> ClassificationPredictive:
        if variance is None:
            return super().predictive(f, weights)
        if f.dim() == 2:
            f, variance = f.unsqueeze(-1), variance.unsqueeze(-1)
        return self._tempered(at_least_single(f), weights, variance.mean(1).log())

    def _tempered(self, f: Tensor, weights: Tensor | None, log_variance: Tensor) -> ClassificationPredictive:
        """Return the mixture whose temperature increases with the log-variance of the logits, (batch, *pixels)."""
        z = standardised_disagreement(log_variance, self.mean, self.std)
        temperature = beside(self.noise, f) * (self.slope * z).exp()
        return ClassificationPredictive(self.log_probs(f, temperature.unsqueeze(1)), weights, self.ignore_index)


def log_logit_variance(f: Tensor, weights: Tensor) -> Tensor:
    """Return the logarithm of the variance over samples of logits (n, batch, class, *pixels), averaged over classes.

    Args:
        f: The logits.
        weights: Weights of the samples, (n,), which sum to 1.
    """
    share = weights.to(f).view(-1, *[1] * (f.dim() - 1))
    mean = (share * f).sum(0)
    deviation = (f - mean).nan_to_num(0.0)  # NaN comes from logits that are -inf in every sample
    return (share * deviation.square()).sum(0).mean(1).log()


def standardised_disagreement(log_variance: Tensor, mean: float, std: float) -> Tensor:
    """Return z, which is also 0 if there is no variance."""
    return ((log_variance - mean) / std).clamp(0.0, LARGEST_DISAGREEMENT)
