"""Guess the task (regression or classification) and check the targets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from .table_source import Source

if TYPE_CHECKING:
    from ..tabular.column_types import Kind

# Whole numbers with at most this many different values are classes.
FEW_VALUES = 10

# Smallest number of rows for training and testing.
LEAST_ROWS = 12

# Floats represent all whole numbers below this one exactly.
EXACT = 2**53


class Task(StrEnum):
    """The task: predict a number or a class."""

    regression = "regression"
    classification = "classification"


@dataclass(frozen=True)
class Guess:
    """The likely task for a target, and the reason."""

    task: Task
    reason: str


def guess_task(name: str, values: NDArray[Any], kind: Kind) -> Guess:
    """Guess regression for numbers, classification for text and for few different whole numbers.

    Args:
        name: Name of the target.
        values: Its values, without missing ones.
        kind: The kind of the column.
    """
    different = len(np.unique(values.astype(str) if kind == "category" else values))
    if kind == "category":
        return Guess(Task.classification, f"{name} is text with {different} different values")
    whole = bool((values == np.round(values)).all())
    if different <= 2 or (whole and different <= FEW_VALUES and len(values) >= 5 * different):
        return Guess(Task.classification, f"{name} has only {different} different values")
    return Guess(Task.regression, f"{name} is numeric with {different} different values")


def require_targets(path: Path | Source, name: str, values: NDArray[Any], kind: Kind, task: Task) -> NDArray[Any]:
    """Return the targets as numbers or labels, or raise an error if they cannot be learned.

    Args:
        path: The file of the table, for messages.
        name: Name of the target.
        values: Its values, without missing ones.
        kind: The kind of the column.
        task: Regression or classification.
    """
    if len(values) < LEAST_ROWS:
        have = "1 row has" if len(values) == 1 else f"{len(values)} rows have"
        raise InputError(f"{path}: only {have} a value in {quoted(name)}. Pass at least {LEAST_ROWS} such rows.")
    if task is Task.regression and kind == "category":
        raise InputError(
            f"--task regression needs numbers, but {quoted(name)} contains text such as {quoted(values[0])}. Use "
            "--task classification."
        )
    if len(np.unique(values.astype(str))) == 1:
        same = quoted(values[0]) if kind == "category" else f"{values[0]:.10g}"
        raise InputError(
            f"--target: {quoted(name)} is {same} in every row, so there is nothing to predict. Choose another column."
        )
    if task is Task.regression:
        from ..tabular.targets import LARGEST_TARGET

        far = np.abs(values) > LARGEST_TARGET
        if far.any():
            raise InputError(
                f"--target: {quoted(name)} contains {values[far][0]:g}, but the largest accepted number is "
                f"{LARGEST_TARGET:g}. Rescale the column."
            )
        return values
    labels = np.unique(values.astype(str))
    if len(labels) > max(FEW_VALUES, len(values) / 2):
        raise InputError(
            f"--target: {quoted(name)} has {len(labels)} different values in {len(values)} rows, too many for classes. "
            "Choose another column, or use --task regression for numbers."
        )
    if kind == "number" and bool(((values == np.round(values)) & (np.abs(values) < EXACT)).all()):
        return values.astype(np.int64)
    return values.astype(str).astype(object)
