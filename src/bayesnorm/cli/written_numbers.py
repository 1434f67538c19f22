"""Read numbers as people write them in tables: $1,234.50, 12 %, 1.234,50 €, (3.00).

All training cells of a column decide its format, and the run stores it. Values are read as they are shown: 12 % is 12.
Groups of three digits are thousands if their separator is not the decimal point.
"""

from __future__ import annotations

import functools
import math
import numbers
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnorm_runtime import CURRENCY, DECIMALS as DECIMALS, LONGEST_NUMBER, PERCENT as PERCENT, read_number

from ..errors import quoted


@dataclass(frozen=True)
class NumberFormat:
    """The number format of a column.

    Args:
        mark: The currency or percent sign; "" for none.
        decimal: The decimal point, if it differs from that of the file; else None.
        example: A cell, and the number it was read as.
    """

    mark: str = ""
    decimal: str | None = None
    example: tuple[str, float] = ("", math.nan)

    def describe(self, name: str) -> str:
        """Return a sentence about the format of the column `name`."""
        cell, value = self.example
        return f"{name} contains numbers such as {quoted(cell)}, which is read as {value:.15g}."


def detect_number_formats(frame: Any, decimal: str, categorical: Collection[str] = ()) -> dict[str, NumberFormat]:
    """Return the formats of the training columns whose numbers are not plain.

    Args:
        frame: A table, from `read_table`.
        decimal: The decimal point of the file.
        categorical: Names of columns to read as categories.
    """
    formats = {name: _detect(frame[name], decimal) for name in frame.columns if name not in categorical}
    return {name: number_format for name, number_format in formats.items() if number_format is not None}


def read_formatted(
    column: Any, number_format: NumberFormat, decimal: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the cells of a column as numbers, and which cells are neither empty nor a number in its format.

    Every cell needs the percent sign, because 0.12 could mean 12 %. A currency can be left out.

    Args:
        column: A pandas series.
        number_format: The format in training.
        decimal: The decimal point of the file.
    """
    point = "," if decimal == "," else number_format.decimal or decimal
    read = functools.cache(lambda text: read_number(text, point))
    marks = {number_format.mark} if number_format.mark == PERCENT else {number_format.mark, ""}
    values, unreadable = np.full(len(column), np.nan), np.zeros(len(column), bool)
    for row, (cell, missing) in enumerate(zip(column, column.isna(), strict=True)):
        if missing:
            continue
        number = read(cell) if isinstance(cell, str) else _number(cell)
        if number is None or number[1] not in marks:
            unreadable[row] = True
        else:
            values[row] = number[0]
    return values, unreadable


def mixed_marks(column: Any, decimal: str) -> str:
    """Return the end of a sentence "It ..." about a column of amounts in several currencies; "" for other columns."""
    cells = dict.fromkeys(cell for cell in column.dropna() if isinstance(cell, str))
    first: dict[str, str] = {}
    for cell in cells:
        if (number := read_number(cell, decimal)) is None:
            return ""
        first.setdefault(number[1], cell)
    marked = [cell for mark, cell in first.items() if mark]
    if len(marked) < 2:
        return ""
    return f"contains amounts in more than one unit, such as {quoted(marked[0])} and {quoted(marked[1])}"


def without_marks(text: str) -> str:
    """Return a cell without the sign, currency or percent sign around its number."""
    if len(text) > LONGEST_NUMBER:
        return text
    return re.sub(rf"^\(?\s*[+\-−]?\s*({CURRENCY})?\s*[+\-−]?|\s*({CURRENCY}|%)?\s*\)?$", "", text.strip())


def _detect(column: Any, decimal: str) -> NumberFormat | None:
    """Return the format of most cells of a training column; None for plain numbers and for other columns."""
    from ..tabular import column_types

    if (
        column_types.contents_of(column) != "text"
        or not (unreadable := column_types.read_numbers(column, decimal)[1]).any()
    ):
        return None
    cells = Counter(cell for cell in column.dropna() if isinstance(cell, str))
    present = int(column.notna().sum())
    best, most = None, max(column_types.MOSTLY * present, present - unreadable.sum())
    for point in (decimal, *(other for other in DECIMALS if other != decimal)):
        read = {cell: number for cell in cells if (number := read_number(cell, point)) is not None}
        marks = Counter[str]()
        for cell, (_, mark) in read.items():
            marks[mark] += cells[cell] if mark else 0
        if not read:
            continue
        mark = max(marks, key=marks.__getitem__)
        odd = max(read, key=lambda cell: (read[cell][1] == mark, len(re.sub(r"\d", "", cell)), len(cell)))
        candidate = NumberFormat(mark, None if point == decimal else point, (odd, read[odd][0]))
        readable = int((~read_formatted(column, candidate, decimal)[1] & column.notna().to_numpy()).sum())
        if readable > most:
            best, most = candidate, readable
        if readable == present:
            break
    return best


def _number(cell: Any) -> tuple[float, str] | None:
    """Return the value of a cell whose type is a number, with no mark; else None."""
    is_number = isinstance(cell, numbers.Real | Decimal) and not isinstance(cell, bool)
    return (float(cell), "") if is_number else None
