"""Find columns without information: empty, the same in every row, or ids.

Estimators use every column of their table. Commands that read a file call this module first.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ..errors import quoted
from ..words import format_date
from .column_types import ColumnValues, is_text
from .dates import is_date

# The reason for leaving out a column without values.
EMPTY = "is empty"

# If more than this fraction of cells contains text that occurs only once, the text is not a category.
MOST = 0.5

# With fewer cells, ids look the same as categories or measurements.
LEAST_CELLS = 8

# With one of these words in the column's name, whole numbers that are all different are ids.
NAMES_ROWS = {"id", "ids", "uid", "uuid", "guid", "key", "index", "idx", "row", "nr", "no", "num", "record"}

# With one of these words in the column's name, consecutive numbers are a time, which can be informative.
NAMES_TIMES = {"year", "years", "month", "week", "day", "days", "hour", "hours", "minute", "time", "date", "age"}

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def why_no_feature(name: str, values: ColumnValues, rows: NDArray[np.int64]) -> str:
    """Return why a column is left out, as the end of a sentence "It ..."; "" for a useful column.

    Args:
        name: Name of the column.
        values: All its values, numbers, text or dates.
        rows: Number of each row in its file.
    """
    absent = np.array([value is None for value in values]) if is_text(values) else np.isnan(values)
    known = values[~absent]
    if not len(known):
        return EMPTY
    found, counts = np.unique(known.astype(str) if is_text(values) else known, return_counts=True)
    if len(found) == 1:
        # If some cells are empty, that can be informative.
        return "" if absent.any() else f"is {_shown(known[0])} in every row"
    if len(known) < LEAST_CELLS or is_date(values):
        return ""
    if is_text(values):
        single = int((counts == 1).sum())
        reason = f"contains text such as {quoted(known[0])} that differs in most rows"
        return reason if single > MOST * len(known) else ""
    if len(found) < len(values) or (found != np.round(found)).any() or found[0] < 0:
        return ""
    words = words_of(name)
    counts_rows = bool((np.diff(found) == 1).all() or (np.diff(values - rows) == 0).all())
    if counts_rows and not words & NAMES_TIMES:
        return f"numbers the rows, from {int(found[0])} to {int(found[-1])}"
    return "is an id, with a different whole number in every row" if words & NAMES_ROWS else ""


def words_of(name: str) -> set[str]:
    """Return the words in a column's name, in lower case."""
    return {word.lower() for word in WORDS.findall(name)}


def _shown(value: str | float | np.datetime64) -> str:
    if isinstance(value, np.datetime64):
        return format_date(value)
    return quoted(value) if isinstance(value, str) else f"{value:.10g}"
