"""Columns that nothing can be learned from: empty, the same in every row, only names for the rows, or dates as text.

Estimators take every column they are given; whoever reads a file asks here first.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ..errors import quoted
from .column_types import ColumnValues, is_text

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

# Days with a year of four digits, alone or before a time.
DATE = re.compile(r"\s*(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{4})(\s*$|[T ]\s*\d{1,2}:\d{2})")

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def why_no_feature(name: str, values: ColumnValues, rows: NDArray[np.int64]) -> str:
    """Return the rest of a sentence "It ..." that says why a column is left out; "" for one that can be learned from.

    Args:
        name: Name of the column.
        values: All its values, numbers or text.
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
    if len(known) < LEAST_CELLS:
        return ""
    if is_text(values) and all(map(DATE.match, found)):
        return dates_unread(known[0])
    if is_text(values):
        single = int((counts == 1).sum())
        return f"holds text such as {quoted(known[0])} that differs in most rows" if single > MOST * len(known) else ""
    if len(found) < len(values) or (found != np.round(found)).any() or found[0] < 0:
        return ""
    words = {word.lower() for word in WORDS.findall(name)}
    counts_rows = bool((np.diff(found) == 1).all() or (np.diff(values - rows) == 0).all())
    if counts_rows and not words & NAMES_TIMES:
        return f"counts the rows, from {found[0]:.0f} to {found[-1]:.0f}"
    return "is an id, a whole number of its own for every row" if words & NAMES_ROWS else ""


def dates_unread(first: object) -> str:
    """Return the rest of a sentence "It ..." on why a column of dates is left out, with one of them."""
    known = f"holds dates or times such as {quoted(str(first))}"
    return f"{known}, which are not read (a column of days since the first would be)"


def _shown(value: str | float) -> str:
    return quoted(value) if isinstance(value, str) else f"{value:.10g}"
