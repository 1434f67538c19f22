"""What is to be predicted: regression or classification."""

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

# Number of different values up to which whole numbers are taken for classes.
FEW_VALUES = 10

# Rows below which there are too few to train on some and test on others.
LEAST_ROWS = 12

# Size up to which floats hold all whole numbers exactly.
EXACT = 2**53


class Task(StrEnum):
    """What is predicted: a number or a class."""

    regression = "regression"
    classification = "classification"


@dataclass(frozen=True)
class Guess:
    """The task that a target looks like, and why."""

    task: Task
    reason: str


def guess_task(name: str, values: NDArray[Any], kind: Kind) -> Guess:
    """Guess regression for numbers, classification for text and for few different whole numbers.

    Args:
        name: Name of the target.
        values: Its values, none of which is missing.
        kind: What the column holds.
    """
    different = len(np.unique(values.astype(str) if kind == "category" else values))
    if kind == "category":
        return Guess(Task.classification, f"{name} is text, with {different} different values")
    whole = bool((values == np.round(values)).all())
    if different <= 2 or (whole and different <= FEW_VALUES and len(values) >= 5 * different):
        return Guess(Task.classification, f"{name} has only {different} different values")
    return Guess(Task.regression, f"{name} is a number with {different} different values")


def require_targets(path: Path | Source, name: str, values: NDArray[Any], kind: Kind, task: Task) -> NDArray[Any]:
    """Return targets that can be learned, numbers or labels, or say why there is nothing to learn.

    Args:
        path: The table's file, for messages.
        name: Name of the target.
        values: Its values, none of which is missing.
        kind: What the column holds.
        task: What is to be predicted.
    """
    if len(values) < LEAST_ROWS:
        have = "1 row has" if len(values) == 1 else f"{len(values)} rows have"
        raise InputError(f"{path}: {have} a {quoted(name)}; at least {LEAST_ROWS} would work.")
    if task is Task.regression and kind == "category":
        raise InputError(
            f"--task: {quoted(name)} holds text such as {quoted(values[0])}; --task classification would work."
        )
    if len(np.unique(values.astype(str))) == 1:
        same = quoted(values[0]) if kind == "category" else f"{values[0]:.10g}"
        raise InputError(f"--target: {quoted(name)} is {same} in every row; a column that differs would work.")
    if task is Task.regression:
        from ..tabular.targets import LARGEST_TARGET

        far = np.abs(values) > LARGEST_TARGET
        if far.any():
            raise InputError(
                f"--target: {quoted(name)} reaches {values[far][0]:g}; numbers up to {LARGEST_TARGET:g} would work."
            )
        return values
    labels = np.unique(values.astype(str))
    if len(labels) > max(FEW_VALUES, len(values) / 2):
        raise InputError(
            f"--target: {quoted(name)} has {len(labels)} different values in {len(values)} rows, too many to be "
            "classes; another column, or --task regression for numbers, would work."
        )
    if kind == "number" and bool(((values == np.round(values)) & (np.abs(values) < EXACT)).all()):
        return values.astype(np.int64)
    return values.astype(str).astype(object)
