"""Read dates and times as people write them: 2024-03-31, 31/3/2024 8:15, 3/31/24, 31 Mar 2024, 45382.

All training cells of a column decide its format, and the run stores it. Numbers above 12 show whether the day or the
month comes first. If there are none, the order that makes the rows chronological decides; otherwise it is month-first
with slashes, and day-first with dots or hyphens.
"""

from __future__ import annotations

import datetime
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bayesnorm_runtime import (
    DAY_DIGITS,
    DAY_FIRST,
    DIGIT_FORMATS,
    MONTH_DIGITS,
    MONTH_FIRST,
    RANGES,
    TIME,
    WAYS as WAYS,
    YEAR_FIRST,
    read_date,
)

from ..errors import InputError, quoted
from ..words import format_date
from .table_source import Source

if TYPE_CHECKING:
    from ..tabular import dates

# With one of these words in the column's name, numbers in the right range are read as dates.
DATE_WORDS = {"date", "datetime", "timestamp", "datum"}

# Number of different cells that decide whether a column can contain dates.
INSPECTED_CELLS = 50

# Formats that the error message for an unreadable date suggests.
DATE_EXAMPLES = "2024-03-31, 31/3/2024 8:15, 31 Mar 2024 or Excel's number of a day"


@dataclass(frozen=True)
class DateFormat:
    """The date format of a column.

    Args:
        way: One of `WAYS`; the first three also read dates with the year first and cells that are dates by type.
        example: A cell, and the date it was read as.
        guessed: Whether the order of day and month is a guess.
    """

    way: str
    example: tuple[str, str] = ("", "")
    guessed: bool = False

    def describe(self, name: str) -> str:
        """Return a sentence about the format of the column `name`; "" if the format is unambiguous."""
        cell, date = self.example
        if self.way == YEAR_FIRST or cell == date:
            return ""
        other = "day-first" if self.way in (MONTH_FIRST, MONTH_DIGITS) else "month-first"
        may = f" (a guess; use --as {shlex.quote(f'{name}={other}')} to override)" if self.guessed else ""
        return f"{name} contains dates such as {quoted(cell)}, which is read as {date}{may}."


def detect_date_formats(
    frame: Any, names: Iterable[str], options: Mapping[str, str], source: Source
) -> tuple[dict[str, DateFormat], dict[str, str]]:
    """Return the date formats of the training columns, and the columns whose dates have several formats.

    Args:
        frame: A table, from `read_table`.
        names: The columns to check.
        options: The options of the user, by column: "date", "day-first" or "month-first".
        source: The source of the table, for messages.

    Returns:
        The format of each column with dates, and for each column whose dates cannot be read a reason that completes
        the sentence "It ...".
    """
    from ..tabular import column_types

    formats, unread = {}, {}
    for name in names:
        column, requested = frame[name], name in options
        present = int(column.notna().sum())
        if not present:
            continue
        way, readable, guessed = _detect_way(column, options.get(name, ""))
        if not readable and requested:
            raise InputError(
                f"--as: {source} contains {quoted(str(column.dropna().iloc[0]))} in {quoted(name)}, which is not a "
                f"date. Write dates as {DATE_EXAMPLES}."
            )
        if readable < present and not requested:
            unreadable = read_dates(column, DateFormat(way))[1]
            odd = column[unreadable].iloc[0]
            if isinstance(odd, str) and readable and any(read_date(odd, order) for order in (DAY_FIRST, MONTH_FIRST)):
                regular = column[~unreadable & column.notna().to_numpy()].iloc[0]
                unread[name] = f"contains dates in more than one format, such as {quoted(regular)} and {quoted(odd)}"
                continue
            if readable <= column_types.MOSTLY * present:
                continue
        formats[name] = DateFormat(way, _example(column, way), guessed)
    return formats, unread


def read_dates(column: Any, date_format: DateFormat) -> tuple[dates.Dates, NDArray[np.bool_]]:
    """Return the cells of a column as dates, and which cells are neither empty nor a date in its format."""
    from ..tabular import column_types, dates

    if column.dtype.kind == "M" or hasattr(column.dtype, "tz"):
        return dates.dates_of(column), np.zeros(len(column), bool)
    rows, different = column_types.different_cells(column)
    values, unreadable = dates.no_dates(len(different) + 1), np.zeros(len(different) + 1, bool)  # the last: missing
    for place, cell in enumerate(different):
        if isinstance(cell, dates.DATE_OBJECTS):
            values[place] = dates.clock_time(cell)
        elif (read := read_date(str(cell), date_format.way)) is not None:
            values[place] = read
        else:
            unreadable[place] = True
    return values[rows], unreadable[rows]


def _detect_way(column: Any, option: str) -> tuple[str, int, bool]:
    """Return the format that reads most cells of a training column, how many, and whether the format is a guess.

    Args:
        column: A pandas series with some values.
        option: The option of the user for this column, or "".
    """
    from ..tabular import column_checks, column_types, dates

    contents = column_types.contents_of(column)
    present = column.dropna()
    if contents == "dates":
        return YEAR_FIRST, len(present), False
    if contents not in ("date objects", "text", "numbers", "categories"):
        return YEAR_FIRST, 0, False
    values, no_number = column_types.read_numbers(column)
    if contents != "date objects" and not no_number.any():
        words = column_checks.words_of(str(column.name))
        present_values = values[~np.isnan(values)]
        fits = [way for way in RANGES if option or words & DATE_WORDS if _all_dates(present_values, way)]
        if option == "day-first" and DAY_DIGITS in fits:
            fits = [DAY_DIGITS]
        guessed = not option and fits[:1] == [MONTH_DIGITS] and DAY_DIGITS in fits
        return (fits[0], len(present), guessed) if fits else (YEAR_FIRST, 0, False)
    date_objects = sum(isinstance(cell, dates.DATE_OBJECTS) for cell in present)
    cells = Counter(cell for cell in present if isinstance(cell, str))
    ways: tuple[str, ...] = (YEAR_FIRST, DAY_FIRST, MONTH_FIRST, TIME)
    if option.endswith("-first"):
        ways = (option.replace("-", " "),)
    if date_objects and all(isinstance(cell, datetime.time) for cell in present):
        return TIME, date_objects, False
    few = [*cells][:INSPECTED_CELLS]
    if sum(any(read_date(cell, way) for way in ways) for cell in few) <= column_types.MOSTLY * len(few) and not option:
        return YEAR_FIRST, date_objects, False
    readable = {way: sum(n for cell, n in cells.items() if read_date(cell, way)) for way in ways}
    best = max(readable, key=readable.__getitem__)  # the first of the best
    if best == DAY_FIRST and readable[best] == readable.get(MONTH_FIRST) == cells.total():
        return _first_by_order(present), readable[best] + date_objects, True
    return best, readable[best] + date_objects, False


def _first_by_order(present: Any) -> str:
    """Return whether the day or the month comes first, if every cell can be read both ways."""
    for way in (DAY_FIRST, MONTH_FIRST):
        values, unreadable = read_dates(present, DateFormat(way))
        steps = np.diff(values[~unreadable].astype(np.int64))
        if len(steps) > 1 and ((steps >= 0).all() or (steps <= 0).all()) and steps.any():
            return way
    slashes = sum("/" in cell for cell in present if isinstance(cell, str))
    return MONTH_FIRST if 2 * slashes > len(present) else DAY_FIRST


def _all_dates(values: NDArray[np.float64], way: str) -> bool:
    """Return whether all numbers are dates in a number format."""
    low, high = RANGES[way]
    return bool(len(values) and low <= values.min() and values.max() <= high) and (
        way not in DIGIT_FORMATS or all(read_date(f"{value:.15g}", way) for value in np.unique(values))
    )


def _example(column: Any, way: str) -> tuple[str, str]:
    """Return the first cell that is text or a number, and the date it is read as."""
    from ..tabular import column_types, dates

    if column.dtype.kind == "M" or hasattr(column.dtype, "tz"):
        return "", ""
    for cell in column.dropna():
        if not isinstance(cell, dates.DATE_OBJECTS) and (read := read_date(str(cell), way)):
            return column_types.label(cell), format_date(np.datetime64(read, "s"))
    return "", ""
