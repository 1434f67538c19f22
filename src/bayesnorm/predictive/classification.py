"""The predictive of classification, per example or per pixel: a mixture of class probabilities over samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from ..errors import InputError
from .base import (
    Line,
    Predictive,
    as_targets,
    choose_samples,
    chosen_rows,
    class_lines,
    mixture_log,
    normalised_weights,
    sampling,
    weighted_mean,
    zero_if_missing,
)


@dataclass(frozen=True, repr=False)
class ClassificationPredictive(Predictive):
    """The predicted class probabilities: p(y | x) = sum over samples t of weight_t p_t(y | x).

    `entropy == mutual_information + expected_entropy`, all in nats. Mutual information is the epistemic part, which
    more training data could reduce. Expected entropy is the aleatoric part.

    Args:
        log_probs: Log probabilities of the classes for each sample, (n, batch, class, *pixels).
        weights: Weights of the samples, (n,). Default: equal weights.
        ignore_index: The class number that marks a missing target. Its log probability is 0. Default: None, no
            target is missing.
    """

    names = ("label", "confidence", "entropy", "mutual_information", "expected_entropy", "probs")

    log_probs: Tensor
    weights: Tensor
    ignore_index: int | None

    def __init__(self, log_probs: Tensor, weights: Tensor | None = None, ignore_index: int | None = None) -> None:
        object.__setattr__(self, "log_probs", log_probs)
        object.__setattr__(self, "weights", normalised_weights(weights, log_probs))
        object.__setattr__(self, "ignore_index", ignore_index)

    @cached_property
    def probs(self) -> Tensor:
        """The class probabilities, (batch, class, *pixels)."""
        return weighted_mean(self.log_probs.exp(), self.weights)

    @property
    def mean(self) -> Tensor:
        """The mean of the one-hot target, which equals `probs`."""
        return self.probs

    @cached_property
    def epistemic(self) -> Tensor:
        return weighted_mean((self.log_probs.exp() - self.probs).square(), self.weights)

    @cached_property
    def aleatoric(self) -> Tensor:
        probs = self.log_probs.exp()
        return weighted_mean(probs * (1 - probs), self.weights)

    def __getitem__(self, rows: Any) -> Self:
        chosen = chosen_rows(rows, self.log_probs[0])
        return type(self)(self.log_probs[:, chosen], self.weights, self.ignore_index)

    def _lines(self) -> list[Line]:
        return class_lines(self.probs) if self.probs.dim() == 2 else []

    def _told(self) -> dict[str, Tensor]:
        return {"label": self.label, "confidence": self.confidence, "mutual information": self.mutual_information}

    @cached_property
    def label(self) -> Tensor:
        """The most probable class, (batch, *pixels)."""
        return self.probs.argmax(1)

    @cached_property
    def confidence(self) -> Tensor:
        """The probability of the most probable class, (batch, *pixels)."""
        return self.probs.amax(1)

    @cached_property
    def entropy(self) -> Tensor:
        """The entropy of `probs` in nats, (batch, *pixels): the total uncertainty."""
        return torch.special.entr(self.probs).sum(1)

    @cached_property
    def expected_entropy(self) -> Tensor:
        """The mean of the samples' entropies in nats, (batch, *pixels): the aleatoric uncertainty."""
        return weighted_mean(torch.special.entr(self.log_probs.exp()).sum(2), self.weights)

    @cached_property
    def mutual_information(self) -> Tensor:
        """Entropy minus expected entropy in nats, (batch, *pixels): the epistemic uncertainty, never negative.

        It measures how much the samples disagree.
        """
        log_ratio = self.log_probs - self.probs.clamp_min(torch.finfo(self.probs.dtype).tiny).log()
        divergence = torch.where(self.log_probs.exp() > 0, self.log_probs.exp() * log_ratio, 0)
        return weighted_mean(divergence.sum(2), self.weights).clamp_min(0)

    def log_prob(self, y: Any) -> Tensor:
        """Return the log probability of the classes `y`, (batch, *pixels)."""
        target, present = as_targets(y, self.log_probs.device), None
        if self.ignore_index is not None:
            present = target != self.ignore_index
            target = torch.where(present, target, torch.zeros_like(target))
        target = self.targets(target)
        chosen = target[None, :, None].expand(len(self.log_probs), *[-1] * (target.dim() + 1))
        log_prob = mixture_log(self.log_probs.gather(2, chosen)[:, :, 0], self.weights)
        return zero_if_missing(log_prob, present)

    def sample(self, n: int, seed: int = 0) -> Tensor:
        sampling(n, seed)
        shape = tuple(self.label.shape)
        uniform = torch.rand(n, *shape, generator=choose_samples(1, self.weights, (), seed)[1], dtype=torch.float64)
        below = self.probs.double().cumsum(1).movedim(1, -1)
        edges = (below / below[..., -1:]).contiguous()
        return torch.searchsorted(edges, uniform.to(edges).movedim(0, -1).contiguous()).movedim(-1, 0)

    def targets(self, y: Any) -> Tensor:
        """Return class numbers (batch, *pixels) as integers, or raise an error."""
        target = as_targets(y, self.log_probs.device)
        _, batch, classes, *pixels = self.log_probs.shape
        shape = (batch, *pixels)
        if target.is_floating_point() and bool((target == target.round()).all()):
            target = target.long()
        if target.is_floating_point() or target.is_complex() or tuple(target.shape) != shape:
            raise InputError(
                f"y has shape {tuple(target.shape)} and {target.dtype}. Pass whole class numbers of shape {shape}."
            )
        target = target.long()
        if target.numel() and not bool(((target >= 0) & (target < classes)).all()):
            low, high = int(target.min()), int(target.max())
            raise InputError(f"y has classes from {low} to {high}, but the network has classes 0 to {classes - 1}.")
        return target
