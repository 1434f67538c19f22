"""Columns that nothing can be learned from: empty, the same in every row, or only names for the rows.

Estimators take every column they are given; whoever reads a file asks here first.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ..errors import quoted
from .column_types import ColumnValues, is_text
from .dates import date_text, is_date

# Why a column without a single value is left out.
EMPTY = "is empty"

# Share of the cells above which words that occur only once make a column names, not categories.
MOST = 0.5

# Cells below which nobody can tell a name from a category or a measurement.
LEAST_CELLS = 8

# Words in a column's name that make whole numbers, all of them different, names of rows.
NAMES_ROWS = {"id", "ids", "uid", "uuid", "guid", "key", "index", "idx", "row", "nr", "no", "num", "record"}

# Words in a column's name that make numbers in steps of one a time, which may well matter.
NAMES_TIMES = {"year", "years", "month", "week", "day", "days", "hour", "hours", "minute", "time", "date", "age"}

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def why_no_feature(name: str, values: ColumnValues, rows: NDArray[np.int64]) -> str:
    """Return the rest of a sentence "It ..." that says why a column is left out; "" for one that can be learned from.

    Args:
        name: Name of the column.
        values: All its values, numbers, text or dates.
        rows: Number of each row in its file, where some were left out.
    """
    absent = np.array([value is None for value in values]) if is_text(values) else np.isnan(values)
    known = values[~absent]
    if not len(known):
        return EMPTY
    found, counts = np.unique(known.astype(str) if is_text(values) else known, return_counts=True)
    if len(found) == 1:
        # Where some cells are empty, whether one is may matter.
        return "" if absent.any() else f"is {_shown(known[0])} in every row"
    if len(known) < LEAST_CELLS or is_date(values):
        return ""
    if is_text(values):
        single = int((counts == 1).sum())
        return f"holds text such as {quoted(known[0])} that differs in most rows" if single > MOST * len(known) else ""
    if len(found) < len(values) or (found != np.round(found)).any() or found[0] < 0:
        return ""
    words = words_of(name)
    counts_rows = bool((np.diff(found) == 1).all() or (np.diff(values - rows) == 0).all())
    if counts_rows and not words & NAMES_TIMES:
        return f"counts the rows, from {found[0]:.0f} to {found[-1]:.0f}"
    return "is an id, a whole number of its own for every row" if words & NAMES_ROWS else ""


def words_of(name: str) -> set[str]:
    """Return the words in a column's name, in small letters."""
    return {word.lower() for word in WORDS.findall(name)}


def _shown(value: str | float | np.datetime64) -> str:
    if isinstance(value, np.datetime64):
        return date_text(value)
    return quoted(value) if isinstance(value, str) else f"{value:.10g}"
