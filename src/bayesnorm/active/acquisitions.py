"""Choose examples by an acquisition: those with the highest scores, or a batch that is chosen jointly.

Scores are functions that return one number per example; higher means more worth labelling. The score of several outputs
or pixels is their mean, in the targets' units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..arguments import require_seed, require_whole
from ..errors import BayesNormError, InputError
from ..metrics import check_finite_means
from ..predictive import ClassificationPredictive, MultiTaskPredictive, Predictive, RegressionPredictive


@runtime_checkable
class BatchAcquisition(Protocol):
    """An acquisition that chooses examples jointly, so that their labels are not redundant."""

    def choose(
        self, predictive: Predictive, count: int, *, seed: int = 0, reference: Predictive | None = None
    ) -> Tensor:
        """Return the indices of the chosen candidates, (count,), all different.

        Args:
            predictive: Predictions of the candidates.
            count: Number of candidates to choose.
            seed: Seed for random choices; the same seed gives the same result.
            reference: Predictions, by the same samples, of the inputs at which the variance should fall, or None.
        """
        ...


Acquisition = Callable[[Predictive], Tensor] | BatchAcquisition
"""A function that returns one score per example, of which the highest are chosen; or a `BatchAcquisition`."""


@dataclass(frozen=True)
class GreedyBatch:
    """Examples chosen one after another, each for what it adds to those before it.

    Args:
        rows: Indices of the chosen examples, (count,).
        gains: What each example added, (count,); their sum is the value of the batch.
    """

    rows: Tensor
    gains: Tensor


@dataclass(frozen=True)
class Random:
    """The baseline: choose examples uniformly at random."""

    def choose(
        self, predictive: Predictive, count: int, *, seed: int = 0, reference: Predictive | None = None
    ) -> Tensor:
        generator = torch.Generator().manual_seed(require_seed(seed))
        return torch.randperm(row_count(predictive), generator=generator)[:count]


def choose(
    acquisition: Acquisition,
    predictive: Predictive,
    count: int,
    *,
    seed: int = 0,
    reference: Predictive | None = None,
) -> Tensor:
    """Return the indices of the candidates to label, (count,), the most informative first.

    Args:
        acquisition: A function of a predictive that returns one score per example, or a `BatchAcquisition`.
        predictive: Predictions of the candidates.
        count: Number of candidates to choose, at most all of them.
        seed: Seed for a batch acquisition.
        reference: Predictions of the inputs at which the variance should fall, for `VarianceReduction`.
    """
    require_acquisition(acquisition)
    count, seed = require_count("count", count, row_count(predictive), "candidates"), require_seed(seed)
    if not isinstance(acquisition, BatchAcquisition):
        scores = _scores(acquisition, predictive)
        return scores.sort(descending=True, stable=True).indices[:count].cpu()
    rows = torch.as_tensor(acquisition.choose(predictive, count, seed=seed, reference=reference)).cpu()
    if rows.shape != (count,) or rows.is_floating_point():
        raise InputError(
            f"acquisition: {type(acquisition).__name__}.choose must return {count} indices, got shape "
            f"{tuple(rows.shape)} and {rows.dtype}."
        )
    require_indices("acquisition", rows, row_count(predictive))
    return rows.long()


def row_count(predictive: Predictive) -> int:
    """Return the number of examples of a predictive; `len` of a multi-task predictive is the number of tasks."""
    return len(next(iter(predictive.values())) if isinstance(predictive, MultiTaskPredictive) else predictive)


def require_acquisition(acquisition: Any) -> None:
    """Raise an error if this is not an acquisition, before the first labels are paid for."""
    is_class = isinstance(acquisition, type)
    if is_class or not (callable(acquisition) or isinstance(acquisition, BatchAcquisition)):
        description = f"the class {acquisition.__name__}" if is_class else type(acquisition).__name__
        raise BayesNormError(
            "acquisition must be a function of a predictive, such as active.bald, or an object with a `choose` method, "
            f"such as active.BatchBALD(), got {description}."
        )


def require_count(name: str, count: Any, most: int | None = None, noun: str = "") -> int:
    """Return a whole number from 1 up to `most`, or raise an error."""
    limit = "" if most is None else f" to {most}, the number of {noun}"
    return require_whole(name, count, 1, most, requirement=f"a whole number from 1{limit}")


def require_indices(name: str, rows: Tensor, most: int) -> None:
    """Raise an error for indices outside 0 ... most - 1, and for duplicates."""
    if bool(((rows < 0) | (rows >= most)).any()):
        wrong = int(rows[(rows < 0) | (rows >= most)][0])
        raise InputError(f"{name}: indices must be from 0 to {most - 1}, got {wrong}.")
    indices, counts = rows.unique(return_counts=True)
    if bool((counts > 1).any()):
        raise InputError(f"{name}: all indices must be different, got {int(indices[counts > 1][0])} twice.")


def _scores(acquisition: Callable[[Predictive], Tensor], predictive: Predictive) -> Tensor:
    """Return the acquisition's scores, one per example, or raise an error."""
    scores = torch.as_tensor(acquisition(predictive)).detach()
    rows = row_count(predictive)
    if scores.shape != (rows,):
        raise InputError(
            f"acquisition must return one score per example, got shape {tuple(scores.shape)} for {rows} examples."
        )
    if bool(torch.isnan(scores).any()):
        raise InputError(
            f"acquisition returned {int(torch.isnan(scores).sum())} NaN scores out of {len(scores)}. Check the outputs "
            "of the network."
        )
    return scores


def predictive_variance(predictive: Predictive) -> Tensor:
    """Return the total variance, epistemic + aleatoric, (batch,).

    It is also large where the noise is large, which more labels cannot reduce.
    """
    _checked(predictive)
    return _row_means(predictive.epistemic + finite_noise(predictive))


def epistemic_variance(predictive: Predictive) -> Tensor:
    """Return the epistemic variance, (batch,): the part of the total variance that more labels can reduce."""
    return _row_means(_checked(predictive).epistemic)


def entropy(predictive: Predictive) -> Tensor:
    """Return the predictive entropy, (batch,), in nats. It is also large where classes overlap."""
    return _row_means(require_classification(predictive).entropy)


def bald(predictive: Predictive) -> Tensor:
    """Return the mutual information I(y; w), (batch,), in nats: Bayesian active learning by disagreement.

    It is the expected information of a label y about the posterior's sample w (Houlsby et al. 2011), and never
    negative. For classes it is exact over the samples. For regression it is that of Gaussians with the same moments,
    1/2 log(1 + epistemic variance / aleatoric variance).
    """
    if isinstance(predictive, ClassificationPredictive):
        return _row_means(require_classification(predictive).mutual_information)
    _checked(predictive)
    noise = finite_noise(predictive).clamp_min(torch.finfo(predictive.aleatoric.dtype).tiny)
    return _row_means(0.5 * torch.log1p(predictive.epistemic / noise))


def require_classification(predictive: Any) -> ClassificationPredictive:
    """Return a classification predictive with finite means, or raise an error."""
    _checked(predictive)
    if not isinstance(predictive, ClassificationPredictive):
        raise InputError(
            f"predictive must be a ClassificationPredictive, got a {type(predictive).__name__}. For regression, use "
            "predictive_variance, epistemic_variance, bald or variance_reduction."
        )
    return predictive


def finite_noise(predictive: Predictive) -> Tensor:
    """Return the aleatoric variance, or raise an error if it is infinite, as no score would then mean anything."""
    if isinstance(predictive, RegressionPredictive) and not bool(torch.isfinite(predictive.aleatoric).all()):
        raise InputError(
            f"predictive: {type(predictive.noise).__name__} has an infinite variance here, so examples cannot be "
            "ranked by it. Use epistemic_variance, or noise with a finite variance (StudentT with df above 2)."
        )
    return predictive.aleatoric


def _checked(predictive: Any) -> Predictive:
    """Return a non-empty predictive of one task with finite means, or raise an error."""
    if isinstance(predictive, MultiTaskPredictive):
        raise InputError(
            "predictive is a MultiTaskPredictive, whose tasks have no common unit. Pass one of its tasks, such as "
            f"predictive[{next(iter(predictive))!r}]."
        )
    if not isinstance(predictive, Predictive):
        raise InputError(f"predictive must be the result of posterior.predict, got a {type(predictive).__name__}.")
    if predictive.mean.numel() == 0:
        raise InputError(f"predictive must have at least one example, got shape {tuple(predictive.mean.shape)}.")
    check_finite_means(predictive)
    return predictive


def _row_means(values: Tensor) -> Tensor:
    """Return the mean over the outputs or pixels of every example, (batch,)."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values
