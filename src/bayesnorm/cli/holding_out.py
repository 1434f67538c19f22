"""Which rows are held out for the report: some at random, the last ones, or whole groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from .task import Task

RowNumbers = NDArray[np.int64]

# Stretches of time that cross-validation holds out one by one.
STRETCHES = 5


class Holdout(StrEnum):
    """Which rows only the report sees."""

    random = "random"
    last = "last"


@dataclass(frozen=True)
class Order:
    """What says which rows come later, or belong together.

    Args:
        name: The column; "" for the order of the rows in their file.
        values: Numbers or dates that rise with time, NaN or NaT where they are missing; or labels of groups.
    """

    name: str
    values: NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows to judge by, each in the file's order.

    Args:
        train, test: Their numbers.
        groups: Which training rows belong together in cross-validation; None where each is alone.
        told: What the reader of the report must know, in sentences.
    """

    train: RowNumbers
    test: RowNumbers
    groups: NDArray[Any] | None = None
    told: tuple[str, ...] = ()


def hold_out(y: NDArray[Any], task: Task, fraction: float, seed: int, time: Order | None, group: Order | None) -> Split:
    """Return the rows to train on and those to judge by.

    Args:
        y: Targets.
        task: Whether these are classes.
        fraction: Share of the rows for judging, at most a half.
        seed: Seed of what is left to chance.
        time: What says which rows come later: the last ones are held out.
        group: Which rows belong together: none of a group are held out, or all.
    """
    if time is not None:
        return _known_classes(y, task, _last(time, fraction))
    if group is not None:
        return _known_classes(y, task, _groups(group, fraction, seed))
    return Split(*split(y, fraction, seed, task))


def split(values: NDArray[Any], fraction: float, seed: int, task: Task) -> tuple[RowNumbers, RowNumbers]:
    """Return row numbers for training and for testing, drawn at random; both have classes as often as all rows do.

    Args:
        values: Targets.
        fraction: Share of the rows for testing, at most a half.
        seed: Seed of the choice.
        task: Whether the targets are classes.
    """
    order = np.random.default_rng(seed).permutation(len(values))
    if task is Task.classification:
        _, numbers, counts = np.unique(values.astype(str), return_inverse=True, return_counts=True)
        order = order[np.argsort(numbers[order], kind="stable")]
        order = order[counts[numbers[order]] > 1]  # a class with one row is needed for training
    steps = np.floor(np.arange(len(order) + 1) * fraction + 0.5)
    test = order[np.diff(steps) > 0] if len(order) else order
    _require_some(test, fraction, len(values))
    return np.setdiff1d(np.arange(len(values)), test), np.sort(test)


def _last(time: Order, fraction: float) -> Split:
    """Hold out the last rows; rows without a time are trained on."""
    from ..report.words import were
    from ..tabular.dates import date_text, days, is_date

    when = days(time.values).astype(np.float64)
    order = np.argsort(np.where(np.isnan(when), -np.inf, when), kind="stable")
    rows = int(len(order) * fraction + 0.5)
    _require_some(order[:rows], fraction, len(order))
    train, test = order[: len(order) - rows], order[len(order) - rows :]
    first = time.values[test[0]]
    shown = date_text(first) if is_date(time.values) else f"{when[test[0]]:.10g}"
    by = f", by {time.name} from {shown} on," if time.name else " of the file"
    told = [f"The last {were(rows, 'row', by)} held out."]
    gaps = int(np.isnan(when).sum())
    if gaps:
        told.append(f"{were(gaps, 'row', f' without a value in {time.name}')} trained on.")
    stretches = np.empty(len(when), np.int64)
    stretches[train] = np.arange(len(train)) * STRETCHES // len(train)
    train = np.sort(train)
    return Split(train, np.sort(test), stretches[train], tuple(told))


def _groups(group: Order, fraction: float, seed: int) -> Split:
    """Hold out whole groups, drawn at random until they have about the wanted share of the rows."""
    from ..report.words import count, were

    labels, numbers, sizes = np.unique(group.values.astype(str), return_inverse=True, return_counts=True)
    if len(labels) < 3:
        raise InputError(
            f"--group: {quoted(group.name)} has {count(len(labels), 'group')}; three or more would work, of which one "
            "is held out."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    wanted, taken = fraction * len(numbers), np.zeros(len(labels), bool)
    for each in order[:-2]:
        # A group that would take away more than it lacks stays, unless there is none yet.
        if not taken.any() or sizes[taken].sum() + sizes[each] / 2 <= wanted:
            taken[each] = True
    test = taken[numbers]
    of = f" of {len(labels):,} by {group.name} ({count(int(test.sum()), 'row')})"
    train = np.flatnonzero(~test)
    told = f"{were(int(taken.sum()), 'group', of)} held out."
    return Split(train, np.flatnonzero(test), group.values[train].astype(str), (told,))


def _known_classes(y: NDArray[Any], task: Task, found: Split) -> Split:
    """Leave out of the judgement rows of classes that no training row has."""
    from ..report.words import were

    if task is not Task.classification:
        return found
    known = np.isin(y[found.test].astype(str), y[found.train].astype(str))
    if known.all():
        return found
    new = sorted({str(label) for label in y[found.test[~known]]})
    if not known.any():
        raise InputError(
            f"--target: every row that is held out is {quoted(new[0])} or the like, which no other row is; another way "
            "to hold rows out would work."
        )
    which = f" of class {quoted(new[0])}{' and others' if len(new) > 1 else ''}, which no training row has,"
    left = f"{were(int((~known).sum()), 'held-out row', which)} not judged."
    return Split(found.train, found.test[known], found.groups, (*found.told, left))


def _require_some(test: RowNumbers, fraction: float, rows: int) -> None:
    if not len(test):
        from ..report.words import count

        raise InputError(f"--test-fraction: {fraction:g} of {count(rows, 'row')} is none; a larger part would work.")
