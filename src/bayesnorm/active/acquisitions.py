"""Choose examples by an acquisition: those with the highest scores, or a batch that is chosen jointly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..arguments import require_seed, require_whole
from ..errors import BayesNormError, InputError
from ..predictive import MultiTaskPredictive, Predictive


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
    require_rows("acquisition", rows, row_count(predictive))
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


def require_rows(name: str, rows: Tensor, most: int) -> None:
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
