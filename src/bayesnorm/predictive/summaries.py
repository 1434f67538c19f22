"""Predictives that keep no samples: they are accumulated over the samples of a mixture, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn, Self

import torch
from torch import Tensor

from ..errors import InputError
from .base import Predictive, Summary, mixture_log
from .classification import ClassificationPredictive
from .multi_task import MultiTaskPredictive
from .noise import NoiseFamily
from .regression import RegressionPredictive


class ClassificationSummary(ClassificationPredictive, Summary):
    """The class probabilities of a mixture, without its samples but with the split of its uncertainty.

    It has all properties and methods of `ClassificationPredictive`, with the same values up to rounding.

    Args:
        log_probs: Log probabilities of the classes under the mixture, (batch, class, *pixels).
        epistemic: Variance of the samples' probabilities, (batch, class, *pixels).
        expected_entropy: Mean of the samples' entropies, (batch, *pixels).
        ignore_index: The class number that marks a missing target. Default: None, no target is missing.
    """

    def __init__(
        self, log_probs: Tensor, epistemic: Tensor, expected_entropy: Tensor, ignore_index: int | None = None
    ) -> None:
        super().__init__(log_probs[None], ignore_index=ignore_index)
        object.__setattr__(self, "_parts", (log_probs, epistemic, expected_entropy))

    _parts: tuple[Tensor, Tensor, Tensor]

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self._parts

    def with_parts(self, *parts: Tensor) -> Self:
        log_probs, epistemic, expected_entropy = parts
        return type(self)(log_probs, epistemic, expected_entropy, self.ignore_index)

    @staticmethod
    def merge(parts: Sequence[Tensor], other: Sequence[Tensor], share: float) -> None:
        """Merge `other` into `parts`, in place; `share` is the weight of `other` in the result."""
        (log_probs, epistemic, entropy), (new_log_probs, new_epistemic, new_entropy) = parts, other
        apart = new_log_probs.exp().sub_(log_probs.exp())
        _add_variances(epistemic, new_epistemic, apart, share)
        # In logarithms, so that very improbable classes keep their precision.
        log_probs += math.log1p(-share)
        torch.logaddexp(log_probs, new_log_probs + math.log(share), out=log_probs)
        _add_means(entropy, new_entropy, share)

    @cached_property
    def probs(self) -> Tensor:
        return self._parts[0].exp()

    @cached_property
    def epistemic(self) -> Tensor:
        return self._parts[1]

    @cached_property
    def aleatoric(self) -> Tensor:
        return (self.probs * (1 - self.probs) - self.epistemic).clamp_min(0)

    @cached_property
    def expected_entropy(self) -> Tensor:
        return self._parts[2]

    @cached_property
    def mutual_information(self) -> Tensor:
        return (self.entropy - self.expected_entropy).clamp_min(0)


class RegressionSummary(RegressionPredictive, Summary):
    """Mean and variance of a mixture, without its samples.

    They do not determine the shape of the distribution, so `log_prob`, `cdf`, `quantile`, `interval` and `sample` raise
    an error. `crps`, and scores with form="gaussian", only need mean and variance.

    Args:
        mean: Predictive mean, (batch, *out).
        epistemic: Variance of the samples' means, (batch, *out).
        aleatoric: Mean of the samples' variances, (batch, *out).
        noise: The family of the samples' noise.
        missing: Whether NaN marks a missing target. Default: False.
    """

    def __init__(
        self, mean: Tensor, epistemic: Tensor, aleatoric: Tensor, noise: NoiseFamily, missing: bool = False
    ) -> None:
        object.__setattr__(self, "_parts", (mean, epistemic, aleatoric))
        object.__setattr__(self, "weights", mean.new_ones(1))
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "missing", missing)

    _parts: tuple[Tensor, Tensor, Tensor]

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self._parts

    def with_parts(self, *parts: Tensor) -> Self:
        mean, epistemic, aleatoric = parts
        return type(self)(mean, epistemic, aleatoric, self.noise, self.missing)

    @staticmethod
    def merge(parts: Sequence[Tensor], other: Sequence[Tensor], share: float) -> None:
        """Merge `other` into `parts`, in place; `share` is the weight of `other` in the result."""
        (mean, epistemic, aleatoric), (new_mean, new_epistemic, new_aleatoric) = parts, other
        apart = new_mean - mean
        _add_variances(epistemic, new_epistemic, apart, share)
        mean.add_(apart, alpha=share)
        _add_means(aleatoric, new_aleatoric, share)

    @cached_property
    def mean(self) -> Tensor:
        return self._parts[0]

    @cached_property
    def epistemic(self) -> Tensor:
        return self._parts[1]

    @cached_property
    def aleatoric(self) -> Tensor:
        return self._parts[2]

    @property
    def loc(self) -> NoReturn:
        raise InputError(
            "This predictive is a summary with mean and variance only, but its samples are needed here. Call "
            'predict(x) without keep="summary", or use crps or a score with form="gaussian".'
        )

    scale = loc


_Mergeable = ClassificationSummary | RegressionSummary


class RunningSummary:
    """Accumulate a summary over samples and examples, some of each at a time.

    Args:
        rows: Number of examples.
    """

    def __init__(self, rows: int) -> None:
        self._weights = torch.zeros(rows, dtype=torch.float64)  # total weight of the samples so far, per example
        self._whole: list[Tensor] = []  # the parts of the summary, for all examples
        self._latest: _Mergeable | MultiTaskPredictive | None = None  # an example of the kind of the result
        self._tasks: dict[str, RunningSummary] = {}

    def add(self, rows: slice, predictive: Predictive, weight: float) -> None:
        """Add samples with this total weight for some examples, all of which have the same earlier samples."""
        if isinstance(predictive, MultiTaskPredictive):
            for name, task in predictive.items():
                self._tasks.setdefault(name, RunningSummary(len(self._weights))).add(rows, task, weight)
            self._latest = predictive
            return
        newest = self._latest = _mergeable(predictive)
        if not self._whole:
            self._whole = [part.new_empty(len(self._weights), *part.shape[1:]) for part in newest.parts]
        before = float(self._weights[rows][0])
        total = before + weight
        parts = [part[rows] for part in self._whole]
        if before:
            newest.merge(parts, [new.to(part) for part, new in zip(parts, newest.parts, strict=True)], weight / total)
        else:
            for part, new in zip(parts, newest.parts, strict=True):
                part.copy_(new)
        self._weights[rows] = total

    def predictive(self) -> Predictive:
        """Return the summary of all samples."""
        if isinstance(self._latest, MultiTaskPredictive):
            return self._latest.with_tasks({name: task.predictive() for name, task in self._tasks.items()})
        assert self._latest is not None
        return self._latest.with_parts(*self._whole)


def summarised(predictive: Predictive) -> Predictive:
    """Return the summary of a predictive, which keeps no samples."""
    if isinstance(predictive, MultiTaskPredictive):
        return predictive.with_tasks({name: summarised(task) for name, task in predictive.items()})
    return predictive if isinstance(predictive, Summary) else _mergeable(predictive)


def _mergeable(predictive: Predictive) -> _Mergeable:
    """Return a summary that can be merged with others."""
    if isinstance(predictive, ClassificationSummary | RegressionSummary):
        return predictive
    if isinstance(predictive, ClassificationPredictive):
        parts = _parts_of_one(predictive.log_probs[0]) if len(predictive.log_probs) == 1 else _parts_of(predictive)
        return ClassificationSummary(*parts, predictive.ignore_index)
    if isinstance(predictive, RegressionPredictive):
        parts = predictive.mean, predictive.epistemic, predictive.aleatoric
        return RegressionSummary(*parts, predictive.noise, predictive.missing)
    raise InputError(
        'keep="summary" supports predictives of regression and classification, but this is a '
        f'{type(predictive).__name__}. Use keep="samples".'
    )


def map_tensors(function: Callable[..., Tensor], *predictives: Any) -> Predictive:
    """Return the summary whose parts are a function of the parts of other summaries of the same kind."""
    first = predictives[0]
    if isinstance(first, MultiTaskPredictive):
        return first.with_tasks(
            {name: map_tensors(function, *(predictive[name] for predictive in predictives)) for name in first}
        )
    assert isinstance(first, Summary)
    return first.with_parts(*map(function, *(predictive.parts for predictive in predictives)))


def _parts_of(predictive: ClassificationPredictive) -> tuple[Tensor, Tensor, Tensor]:
    log_probs = mixture_log(predictive.log_probs, predictive.weights)
    return log_probs, predictive.epistemic, predictive.expected_entropy


def _parts_of_one(log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same for a single sample, by a way that is fast for large images."""
    finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)  # so that 0 times it is 0
    entropy = log_probs.exp().mul_(finite).sum(1).neg_()
    return log_probs, log_probs.new_zeros(()).expand_as(log_probs), entropy


def _add_variances(variance: Tensor, new: Tensor, apart: Tensor, share: float) -> None:
    """Merge a new group into `variance`, with weight `share`; `apart` is the difference of the two means."""
    variance.mul_(1 - share).add_(new, alpha=share).addcmul_(apart, apart, value=share * (1 - share))


def _add_means(mean: Tensor, new: Tensor, share: float) -> None:
    """Merge a new group into `mean`, with weight `share`. Both may be infinite."""
    mean.mul_(1 - share).add_(new, alpha=share)
