"""Sentences about targets that need care: counts, and times that end before their event (censoring)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .options import Task

# Counts begin at most here, and their mean is at most this.
FIRST_COUNT, MOST_COUNTED = 1, 1000

# With one of these words in a name, a column of two values says whether an event was observed, or a time ended before.
CENSORED = {"censor", "censored", "censoring", "uncensored"}
EVENTS = {
    "event",
    "status",
    "dead",
    "death",
    "died",
    "deceased",
    "observed",
    "failed",
    "churned",
    "relapse",
    "relapsed",
}

# With one of these words, a target is a time until something.
TIMES = {"time", "duration", "days", "weeks", "months", "years", "hours", "survival", "lifetime", "tenure", "followup"}
TIMES |= {"age", "futime", "stime", "os", "pfs"}


def target_words(name: str, y: NDArray[Any], inputs: Any, task: Task) -> list[str]:
    """Return sentences about the target; none if it needs no care.

    Args:
        name: Name of the target.
        y: Its values.
        inputs: A data frame of the input columns.
        task: Regression or classification.
    """
    if task is not Task.regression:
        return []
    lines = []
    if is_count(y):
        lines.append(
            f"{name} is a count: whole numbers from {y.min():,.0f} to {y.max():,.0f}. Its predictions are decimal "
            "numbers, which stand for averages."
        )
    flag = censoring_flag(name, {column: inputs[column].to_numpy() for column in inputs})
    if flag:
        lines.append(
            f"{flag} may say whether {name} was cut off before its event (censoring). The model takes every {name} as "
            f"complete, so its predictions are then too short, and {flag} is not known for new rows. Use methods of "
            "survival analysis if that is so."
        )
    return lines


def is_count(y: NDArray[Any]) -> bool:
    """Return whether a target counts something: whole numbers from 0 or 1 on, of which small ones occur often."""
    if (y != np.round(y)).any() or not 0 <= y.min() <= FIRST_COUNT or y.mean() > MOST_COUNTED:
        return False
    # Amounts in whole units seldom repeat; counts do.
    return len(np.unique(y)) <= len(y) / 2


def censoring_flag(target: str, columns: Mapping[str, NDArray[Any]]) -> str:
    """Return the name of a column of two values that may say whether times are censored; "" if there is none."""
    from ..tabular import column_checks

    for name, values in columns.items():
        words = column_checks.words_of(name)
        times = column_checks.words_of(target) & TIMES
        named = words & CENSORED or (words & EVENTS and times)
        present = {str(value) for value in values if value is not None and value == value}
        if named and len(present) == 2:
            return name
    return ""
