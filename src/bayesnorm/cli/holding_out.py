"""Choose the held-out rows of the report: random rows, the latest rows, or whole groups."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from .task import Task

RowNumbers = NDArray[np.int64]

# Periods of time that cross-validation holds out one by one.
STRETCHES = 5


class Holdout(StrEnum):
    """Which rows are held out."""

    random = "random"
    last = "last"


@dataclass(frozen=True)
class Order:
    """A column that orders the rows by time, or groups them.

    Args:
        name: The column; "" for the order of the rows in their file.
        values: Numbers or dates (NaN or NaT if missing), or labels of groups.
    """

    name: str
    values: NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Training rows and held-out rows, each in the order of the file.

    Args:
        train, test: Row numbers.
        groups: Labels of training rows that stay together in cross-validation; None for no groups.
        told: Sentences about the split for the reader of the report.
    """

    train: RowNumbers
    test: RowNumbers
    groups: NDArray[Any] | None = None
    told: tuple[str, ...] = ()


def hold_out(y: NDArray[Any], task: Task, fraction: float, seed: int, time: Order | None, group: Order | None) -> Split:
    """Return the training rows and the held-out rows.

    Args:
        y: Targets.
        task: Regression or classification.
        fraction: Fraction of rows to hold out, at most 0.5.
        seed: The random seed.
        time: The order in time: the latest rows are held out.
        group: The groups: whole groups are held out.
    """
    if time is not None:
        return _known_classes(y, task, _last(time, fraction))
    if group is not None:
        return _known_classes(y, task, _groups(group, fraction, seed))
    return Split(*split(y, fraction, seed, task))


def split(values: NDArray[Any], fraction: float, seed: int, task: Task) -> tuple[RowNumbers, RowNumbers]:
    """Return random row numbers for training and for testing, stratified by class.

    Args:
        values: Targets.
        fraction: Fraction of rows for testing, at most 0.5.
        seed: The random seed.
        task: Regression or classification.
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
    """Hold out the latest rows; rows without a time are used for training."""
    from ..report.words import were
    from ..tabular.dates import date_text, days, is_date

    when = days(time.values).astype(np.float64)
    order = np.argsort(np.where(np.isnan(when), -np.inf, when), kind="stable")
    rows = int(len(order) * fraction + 0.5)
    _require_some(order[:rows], fraction, len(order))
    train, test = order[: len(order) - rows], order[len(order) - rows :]
    first = time.values[test[0]]
    shown = date_text(first) if is_date(time.values) else f"{when[test[0]]:.10g}"
    by = f" (by {time.name}, from {shown} on)" if time.name else " of the file"
    told = [f"The last {were(rows, 'row', by)} held out."]
    gaps = int(np.isnan(when).sum())
    if gaps:
        told.append(f"{were(gaps, 'row', f' without a value in {time.name}')} used for training.")
    stretches = np.empty(len(when), np.int64)
    stretches[train] = np.arange(len(train)) * STRETCHES // len(train)
    train = np.sort(train)
    return Split(train, np.sort(test), stretches[train], tuple(told))


def _groups(group: Order, fraction: float, seed: int) -> Split:
    """Hold out whole groups, chosen at random until they contain about the requested fraction of the rows."""
    from ..report.words import count, were

    labels, numbers, sizes = np.unique(group.values.astype(str), return_inverse=True, return_counts=True)
    if len(labels) < 3:
        raise InputError(
            f"--group: column {quoted(group.name)} has {count(len(labels), 'different value')}. Use a column with at "
            "least three groups."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    wanted, taken = fraction * len(numbers), np.zeros(len(labels), bool)
    for each in order[:-2]:
        # Skip a group that would overshoot by more than half of its size, unless it is the first one.
        if not taken.any() or sizes[taken].sum() + sizes[each] / 2 <= wanted:
            taken[each] = True
    test = taken[numbers]
    of = f" of {len(labels):,} by {group.name} ({count(int(test.sum()), 'row')})"
    train = np.flatnonzero(~test)
    told = f"{were(int(taken.sum()), 'group', of)} held out."
    return Split(train, np.flatnonzero(test), group.values[train].astype(str), (told,))


def _known_classes(y: NDArray[Any], task: Task, found: Split) -> Split:
    """Drop held-out rows whose class does not occur in training."""
    from ..report.words import were

    if task is not Task.classification:
        return found
    known = np.isin(y[found.test].astype(str), y[found.train].astype(str))
    if known.all():
        return found
    new = sorted({str(label) for label in y[found.test[~known]]})
    if not known.any():
        raise InputError(
            f"--target: no held-out row has a class that occurs in training (the first one has {quoted(new[0])}). Hold "
            "out other rows, with another --test-fraction, --time, --group or --holdout."
        )
    which = f" of class {quoted(new[0])}{' and others' if len(new) > 1 else ''}"
    left = f"{were(int((~known).sum()), 'held-out row', which)} not tested, because no training row has this class."
    return Split(found.train, found.test[known], found.groups, (*found.told, left))


def _require_some(test: RowNumbers, fraction: float, rows: int) -> None:
    if not len(test):
        from ..report.words import count

        raise InputError(f"--test-fraction: {fraction:g} of {count(rows, 'row')} is no row. Use a larger fraction.")
