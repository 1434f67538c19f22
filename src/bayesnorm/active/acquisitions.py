"""From an acquisition to rows: the best by score, or whatever a batch acquisition chooses together."""

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
    """What chooses rows together, so that they do not all ask the same."""

    def choose(
        self, predictive: Predictive, count: int, *, seed: int = 0, reference: Predictive | None = None
    ) -> Tensor:
        """Return row numbers, (count,), none twice.

        Args:
            predictive: Predictions of the candidates.
            count: Number of rows to choose.
            seed: Seed of what is left to chance; the same seed gives the same rows.
            reference: Predictions, by the same samples, of rows that matter, where there are such.
        """
        ...


Acquisition = Callable[[Predictive], Tensor] | BatchAcquisition
"""A score per row, whose highest are taken; or an object that chooses a batch."""


@dataclass(frozen=True)
class GreedyBatch:
    """Rows chosen one after the other, each for what it adds to those before it.

    Args:
        rows: Row numbers, (count,).
        gains: What each added, (count,); their sum is the batch's worth.
    """

    rows: Tensor
    gains: Tensor


@dataclass(frozen=True)
class Random:
    """The baseline: any rows, all with the same chance."""

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
    """Return the rows of a predictive that an acquisition wants labelled, (count,), the most wanted first.

    Args:
        acquisition: A function of a predictive that gives one score per row, or a `BatchAcquisition`.
        predictive: Predictions of the candidates.
        count: Number of rows, at most as many as there are.
        seed: Seed for a batch acquisition.
        reference: Predictions of rows that matter, for a batch acquisition that uses such.
    """
    require_acquisition(acquisition)
    count = require_count("count", count, row_count(predictive), "rows")
    if not isinstance(acquisition, BatchAcquisition):
        scores = _scores(acquisition, predictive)
        return scores.sort(descending=True, stable=True).indices[:count].cpu()
    rows = torch.as_tensor(acquisition.choose(predictive, count, seed=seed, reference=reference)).cpu()
    if rows.shape != (count,) or rows.is_floating_point():
        raise InputError(
            f"acquisition: {type(acquisition).__name__} chose rows of shape {tuple(rows.shape)} and {rows.dtype}; "
            f"{count} row numbers would work."
        )
    require_rows("acquisition", rows, row_count(predictive))
    return rows.long()


def row_count(predictive: Predictive) -> int:
    """Return the number of rows of a predictive; the length of that of several tasks is the number of tasks."""
    return len(next(iter(predictive.values())) if isinstance(predictive, MultiTaskPredictive) else predictive)


def require_acquisition(acquisition: Any) -> None:
    """Refuse what cannot choose rows, before the first labels are paid for."""
    is_class = isinstance(acquisition, type)
    if is_class or not (callable(acquisition) or isinstance(acquisition, BatchAcquisition)):
        given = f"the class {acquisition.__name__}" if is_class else type(acquisition).__name__
        raise BayesNormError(
            "acquisition must be a function of a predictive such as active.bald, or an object with `choose` such "
            f"as active.BatchBALD(), got {given}."
        )


def require_count(name: str, count: Any, most: int | None = None, of: str = "") -> int:
    """Return a whole number from 1, up to what there is, or refuse it."""
    limit = "" if most is None else f" to {most}, the number of {of}"
    return require_whole(name, count, 1, most, requirement=f"a whole number from 1{limit}")


def require_rows(name: str, rows: Tensor, most: int) -> None:
    """Refuse row numbers outside a table with `most` rows, and those that stand twice."""
    if bool(((rows < 0) | (rows >= most)).any()):
        raise InputError(f"{name}: holds row {int(rows[(rows < 0) | (rows >= most)][0])}; 0 to {most - 1} would work.")
    found, counts = rows.unique(return_counts=True)
    if bool((counts > 1).any()):
        raise InputError(f"{name}: holds row {int(found[counts > 1][0])} twice; every row once would work.")


def _scores(acquisition: Callable[[Predictive], Tensor], predictive: Predictive) -> Tensor:
    """Return one score per row, or say what is wrong with what the acquisition gave."""
    scores = torch.as_tensor(acquisition(predictive)).detach()
    rows = row_count(predictive)
    if scores.shape != (rows,):
        raise InputError(
            f"acquisition: gave scores of shape {tuple(scores.shape)} for {rows} rows; one per row would work."
        )
    if bool(torch.isnan(scores).any()):
        raise InputError(
            f"acquisition: gave {int(torch.isnan(scores).sum())} NaN scores of {len(scores)}; a network with finite "
            "outputs would work."
        )
    return scores
