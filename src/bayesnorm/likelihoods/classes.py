"""Likelihoods of classes: the base class, with a temperature and missing targets, and the softmax of logits."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import nll_loss

from ..arguments import as_whole, hold_plain_numbers, require_positive
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
