"""Predictives that keep no samples: closed forms, and summaries that are accumulated over samples one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn, Self

import torch
from torch import Tensor

from ..errors import InputError
from .base import Predictive, Summary, mixture_log, zero_if_missing
from .classification import ClassificationPredictive
from .multi_task import MultiTaskPredictive
from .noise import NoiseFamily
from .regression import RegressionPredictive


class ClassificationSummary(Summary, ClassificationPredictive):
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
        object.__setattr__(self, "parts", (log_probs, epistemic, expected_entropy))

    def with_parts(self, first: Tensor, second: Tensor, third: Tensor) -> Self:
        return type(self)(first, second, third, self.ignore_index)

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
        return self.parts[0].exp()

    @property
    def epistemic(self) -> Tensor:
        return self.parts[1]

    @cached_property
    def aleatoric(self) -> Tensor:
        return (self.probs * (1 - self.probs) - self.epistemic).clamp_min(0)

    @property
    def expected_entropy(self) -> Tensor:
        return self.parts[2]

    @cached_property
    def mutual_information(self) -> Tensor:
        return (self.entropy - self.expected_entropy).clamp_min(0)


class MomentsPredictive(Summary, RegressionPredictive):
    """A predictive of regression that consists of mean, epistemic and aleatoric variance, each (batch, *out)."""

    @property
    def mean(self) -> Tensor:
        return self.parts[0]

    @property
    def epistemic(self) -> Tensor:
        return self.parts[1]

    @property
    def aleatoric(self) -> Tensor:
        return self.parts[2]


class GaussianPredictive(MomentsPredictive):
    """The Gaussian p(y | x) = N(mean, epistemic + aleatoric), independently for every target.

    It is the predictive if the network's output has a Gaussian distribution in closed form. It has one mixture
    component and keeps no samples.

    Args:
        mean: Predictive mean, (batch, *out).
        epistemic: Variance of the network's output under the posterior, (batch, *out).
        aleatoric: Variance of the noise, broadcast to the shape of `mean`.
        missing: Whether NaN marks a missing target. Default: False.
    """

    def __init__(self, mean: Tensor, epistemic: Tensor, aleatoric: Tensor, missing: bool = False) -> None:
        super().__init__(mean[None], (epistemic + aleatoric).sqrt()[None], missing=missing)
        object.__setattr__(self, "parts", (mean, epistemic, aleatoric.expand_as(mean)))

    def with_parts(self, first: Tensor, second: Tensor, third: Tensor) -> Self:
        return type(self)(first, second, third, self.missing)

    def expected_log_prob(self, y: Any) -> Tensor:
        """Return the mean of log N(y; f, aleatoric) over f ~ N(mean, epistemic), in closed form."""
        target, present = self.observed(y)
        squares = (target - self.mean).square() + self.epistemic
        log_prob = -0.5 * (squares / self.aleatoric + (2 * math.pi * self.aleatoric).log())
        return zero_if_missing(log_prob, present)


class RegressionSummary(MomentsPredictive):
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
        object.__setattr__(self, "parts", (mean, epistemic, aleatoric))
        object.__setattr__(self, "weights", mean.new_ones(1))
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "missing", missing)

    def with_parts(self, first: Tensor, second: Tensor, third: Tensor) -> Self:
        return type(self)(first, second, third, self.noise, self.missing)

    @staticmethod
    def merge(parts: Sequence[Tensor], other: Sequence[Tensor], share: float) -> None:
        """Merge `other` into `parts`, in place; `share` is the weight of `other` in the result."""
        (mean, epistemic, aleatoric), (new_mean, new_epistemic, new_aleatoric) = parts, other
        apart = new_mean - mean
        _add_variances(epistemic, new_epistemic, apart, share)
        mean.add_(apart, alpha=share)
        _add_means(aleatoric, new_aleatoric, share)

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
        if len(predictive.log_probs) == 1:
            return ClassificationSummary(*_parts_of_one(predictive.log_probs[0]), predictive.ignore_index)
        log_probs = mixture_log(predictive.log_probs, predictive.weights)
        return ClassificationSummary(
            log_probs, predictive.epistemic, predictive.expected_entropy, predictive.ignore_index
        )
    if isinstance(predictive, RegressionPredictive):
        moments = predictive.mean, predictive.epistemic, predictive.aleatoric
        return RegressionSummary(*moments, predictive.noise, predictive.missing)
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


def joined(predictives: Sequence[Any]) -> Any:
    """Return the predictive of the examples of several predictives with the same samples, one after the other."""
    first = predictives[0]
    if len(predictives) == 1:
        return first
    if isinstance(first, MultiTaskPredictive):
        return first.with_tasks({name: joined([predictive[name] for predictive in predictives]) for name in first})
    if isinstance(first, Summary):
        return map_tensors(lambda *parts: torch.cat(parts), *predictives)
    if isinstance(first, RegressionPredictive):
        loc, scale = (torch.cat([getattr(part, name) for part in predictives], 1) for name in ("loc", "scale"))
        return type(first)(loc, scale, first.weights, first.noise, first.missing)
    log_probs = torch.cat([predictive.log_probs for predictive in predictives], 1)
    return type(first)(log_probs, first.weights, first.ignore_index)


def stored_bytes(predictive: Any) -> int:
    """Return the memory that a predictive needs for what it stores."""
    if isinstance(predictive, MultiTaskPredictive):
        return sum(stored_bytes(task) for task in predictive.values())
    if isinstance(predictive, Summary):
        return sum(part.numel() * part.element_size() for part in predictive.parts)
    stored = [predictive.loc] * 2 if isinstance(predictive, RegressionPredictive) else [predictive.log_probs]
    return sum(part.numel() * part.element_size() for part in stored)


def _parts_of_one(log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parts of the summary of a single sample, by a way that is fast for large images."""
    finite = log_probs.clamp_min(torch.finfo(log_probs.dtype).min)  # so that 0 times it is 0
    entropy = log_probs.exp().mul_(finite).sum(1).neg_()
    return log_probs, log_probs.new_zeros(()).expand_as(log_probs), entropy


def _add_variances(variance: Tensor, new: Tensor, apart: Tensor, share: float) -> None:
    """Merge a new group into `variance`, with weight `share`; `apart` is the difference of the two means."""
    variance.mul_(1 - share).add_(new, alpha=share).addcmul_(apart, apart, value=share * (1 - share))


def _add_means(mean: Tensor, new: Tensor, share: float) -> None:
    """Merge a new group into `mean`, with weight `share`. Both may be infinite."""
    mean.mul_(1 - share).add_(new, alpha=share)
