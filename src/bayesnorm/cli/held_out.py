"""Held-out rows: choose random rows, the latest rows or whole groups, and predict them for the report.

The report of a small table uses cross-validation instead, in which every row is held out once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from ..words import format_count, format_date, were
from .options import Task
from .table_source import as_labels

RowNumbers = NDArray[np.int64]

# Periods of time that cross-validation holds out one by one.
PERIODS = 5

# Level of the intervals that the report tests.
LEVEL = 0.9

# Below this number of rows a held-out set is too small, so the report uses cross-validation.
FEW_ROWS = 150


@dataclass(frozen=True)
class RowOrder:
    """A column that orders the rows by time, or groups them.

    Args:
        name: The column; "" for the order of the rows in their file.
        values: Numbers or dates (NaN or NaT if missing), or labels of groups.
    """

    name: str
    values: NDArray[Any]


@dataclass(frozen=True)
class RowSplit:
    """Training rows and held-out rows, each in the order of the file.

    Args:
        train, test: Row numbers.
        groups: Labels of training rows that stay together in cross-validation; None for no groups.
        messages: Sentences about the split for the reader of the report.
    """

    train: RowNumbers
    test: RowNumbers
    groups: NDArray[Any] | None = None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class HeldOutPredictions:
    """Predictions of rows whose targets are known.

    Args:
        rows: Their numbers in the table.
        predictive: Their predictive distributions.
        frame: The same predictions as columns, from `tabular.prediction_frame` at `LEVEL`.
        pit: Maps the predictive's CDF at the targets, (rows, 1), to the CDF that the frame's intervals imply; None for
            classes.
        cross_validated: Whether all rows were predicted by cross-validation.
    """

    rows: NDArray[np.int64]
    predictive: Any
    frame: Any
    pit: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None
    cross_validated: bool


def hold_out(
    y: NDArray[Any], task: Task, fraction: float, seed: int, time: RowOrder | None, group: RowOrder | None
) -> RowSplit:
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
        return _drop_new_classes(y, task, _hold_out_latest(time, fraction))
    if group is not None:
        return _drop_new_classes(y, task, _hold_out_groups(group, fraction, seed))
    return RowSplit(*random_split(y, fraction, seed, task))


def keep_all(rows: int, time: RowOrder | None, group: RowOrder | None) -> RowSplit:
    """Return a split in which all rows are for training, and cross-validation holds out whole periods or groups.

    Args:
        rows: Number of rows.
        time: The order in time.
        group: The groups.
    """
    groups = None if group is None else as_labels(group.values)
    if time is not None:
        groups = np.empty(rows, np.int64)
        groups[_in_time(time)] = np.arange(rows) * PERIODS // rows
    message = f"The model learns from all {rows:,} rows. The report uses cross-validation."
    return RowSplit(np.arange(rows), np.arange(0), groups, (message,))


def random_split(values: NDArray[Any], fraction: float, seed: int, task: Task) -> tuple[RowNumbers, RowNumbers]:
    """Return random row numbers for training and for testing, stratified by class.

    Args:
        values: Targets.
        fraction: Fraction of rows for testing, at most 0.5.
        seed: The random seed.
        task: Regression or classification.
    """
    order = np.random.default_rng(seed).permutation(len(values))
    if task is Task.classification:
        _, numbers, counts = np.unique(as_labels(values), return_inverse=True, return_counts=True)
        order = order[np.argsort(numbers[order], kind="stable")]
        order = order[counts[numbers[order]] > 1]  # a class with one row is needed for training
    steps = np.floor(np.arange(len(order) + 1) * fraction + 0.5)
    test = order[np.diff(steps) > 0] if len(order) else order
    _require_some(test, fraction, len(values))
    return np.setdiff1d(np.arange(len(values)), test), np.sort(test)


def predict_held_out(model: Any, inputs: Any, y: NDArray[Any], test: RowNumbers) -> HeldOutPredictions:
    """Predict the held-out rows.

    Args:
        model: A fitted estimator of `bayesnorm.tabular`.
        inputs: The inputs of all rows of the table.
        y: The targets of all rows.
        test: Numbers of the held-out rows.
    """
    from ..tabular import prediction_frame

    inputs, levels = inputs.iloc[test], getattr(model, "interval_levels_", None)
    predictive, uncertainty = model.predict_with_uncertainty(inputs)
    frame = prediction_frame(model, inputs, predictive, uncertainty, LEVEL)
    calibrated = None if levels is None else levels.transform
    pit = (lambda _: model.conformal_cdf(inputs, y[test])) if getattr(model, "conformal", False) else calibrated
    return HeldOutPredictions(test, predictive, frame, pit, False)


def predict_by_folds(model: Any, inputs: Any) -> HeldOutPredictions:
    """Return the predictions of cross-validation, in which no network predicts a row that it was trained on.

    The noise, the effective batch size and the setting were chosen on these rows. The width of a fold's intervals
    comes from the other folds.

    Args:
        model: A fitted estimator of `bayesnorm.tabular`.
        inputs: The inputs of all rows of the table.
    """
    from ..predictive import RegressionPredictive
    from ..tabular import FoldLevels, prediction_frame

    held_out = model.selection_.out_of_fold
    inputs = inputs.iloc[held_out.rows]
    levels = FoldLevels.fit(held_out) if isinstance(held_out.predictive, RegressionPredictive) else None
    uncertainty = model.uncertainty_of(held_out.predictive)
    # Training rows are never unusual.
    uncertainty = uncertainty.assign(unusual=False, reason="", unseen_columns="")
    frame = prediction_frame(model, inputs, held_out.predictive, uncertainty, LEVEL, levels)
    pit = None if levels is None else levels.transform
    return HeldOutPredictions(held_out.rows, held_out.predictive, frame, pit, True)


def _hold_out_latest(time: RowOrder, fraction: float) -> RowSplit:
    """Hold out the latest rows; rows without a time are used for training."""
    from ..tabular import dates

    when, order = dates.days(time.values).astype(np.float64), _in_time(time)
    rows = int(len(order) * fraction + 0.5)
    _require_some(order[:rows], fraction, len(order))
    train, test = order[: len(order) - rows], order[len(order) - rows :]
    first = time.values[test[0]]
    shown = format_date(first) if dates.is_date(time.values) else f"{when[test[0]]:.10g}"
    by = f" (by {time.name}, from {shown} on)" if time.name else " of the file"
    messages = [f"The last {were(rows, 'row', by)} held out."]
    gaps = int(np.isnan(when).sum())
    if gaps:
        messages.append(f"{were(gaps, 'row', f' without a value in {time.name}')} used for training.")
    periods = np.empty(len(when), np.int64)
    periods[train] = np.arange(len(train)) * PERIODS // len(train)
    train = np.sort(train)
    return RowSplit(train, np.sort(test), periods[train], tuple(messages))


def _in_time(time: RowOrder) -> RowNumbers:
    """Return the rows in the order of time; rows without a time come first."""
    from ..tabular import dates

    when = dates.days(time.values).astype(np.float64)
    return np.argsort(np.where(np.isnan(when), -np.inf, when), kind="stable")


def _hold_out_groups(group: RowOrder, fraction: float, seed: int) -> RowSplit:
    """Hold out whole groups, chosen at random until they contain about the requested fraction of the rows."""
    labels, numbers, sizes = np.unique(as_labels(group.values), return_inverse=True, return_counts=True)
    if len(labels) < 3:
        raise InputError(
            f"--group: column {quoted(group.name)} has {format_count(len(labels), 'different value')}. Use a column "
            "with at least three groups."
        )
    order = np.random.default_rng(seed).permutation(len(labels))
    wanted, taken = fraction * len(numbers), np.zeros(len(labels), bool)
    for number in order[:-2]:
        # Skip a group that would overshoot by more than half of its size, unless it is the first one.
        if not taken.any() or sizes[taken].sum() + sizes[number] / 2 <= wanted:
            taken[number] = True
    test = taken[numbers]
    which = f" of {len(labels):,} by {group.name} ({format_count(int(test.sum()), 'row')})"
    train = np.flatnonzero(~test)
    message = f"{were(int(taken.sum()), 'group', which)} held out."
    return RowSplit(train, np.flatnonzero(test), as_labels(group.values[train]), (message,))


def _drop_new_classes(y: NDArray[Any], task: Task, split: RowSplit) -> RowSplit:
    """Drop held-out rows whose class does not occur in training."""
    if task is not Task.classification:
        return split
    trained = {*as_labels(y[split.train])}
    in_training = np.array([label in trained for label in as_labels(y[split.test])], dtype=bool)
    if in_training.all():
        return split
    new = sorted({str(label) for label in y[split.test[~in_training]]})
    if not in_training.any():
        raise InputError(
            f"--target: no held-out row has a class that occurs in training (the first one has {quoted(new[0])}). Hold "
            "out other rows, with another --test-fraction, --time, --group or --holdout."
        )
    which = f" of class {quoted(new[0])}{' and others' if len(new) > 1 else ''}"
    left_out = were(int((~in_training).sum()), "held-out row", which)
    message = f"{left_out} not tested, because no training row has this class."
    return RowSplit(split.train, split.test[in_training], split.groups, (*split.messages, message))


def _require_some(test: RowNumbers, fraction: float, rows: int) -> None:
    if not len(test):
        raise InputError(
            f"--test-fraction: {fraction:g} of {format_count(rows, 'row')} is no row. Use a larger fraction."
        )
