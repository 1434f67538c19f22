"""Read the columns of a file as numbers, categories or dates; errors name the file.

`tabular/column_types.py` decides the kind of a column, for training and for new rows alike.
"""

from __future__ import annotations

import difflib
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from ..words import format_count
from .table_source import Source
from .tables import TableFile, pandas
from .written_dates import DateFormat, read_dates
from .written_numbers import PERCENT, NumberFormat, read_formatted

if TYPE_CHECKING:
    from ..tabular import column_types


# Names longer than this many characters are not compared with similar ones, because that takes long.
LONGEST_COMPARED = 200

# Least similarity of two names, from 0 to 1, at which one is suggested for the other.
NEAR = 0.7

# In training, at most this fraction of a column's cells, rounded up, may be of another kind than the others. With fewer
# cells than LEAST_CELLS, none may be.
MOST_ODD, LEAST_CELLS = 0.01, 20

OddCells = dict[str, NDArray[np.bool_]]
"""Which cells are of another kind than their column, by column; they count as missing."""

# Types of cells that are neither a number nor text.
_NESTED = {list, tuple, dict, bytes, np.ndarray}


def require_columns(file: TableFile, names: Sequence[str], option: str) -> None:
    """Raise an error for a name that the table does not have, and suggest the most similar one.

    Args:
        file: The table.
        names: Names that it must have.
        option: The option or argument that needs them, such as "--target".
    """
    columns = dict.fromkeys(file.names)
    for name in names:
        if name not in columns:
            short = [other for other in columns if len(other) <= LONGEST_COMPARED >= len(name)]
            folded = {_fold(other): other for other in reversed(short)}
            near = difflib.get_close_matches(_fold(name), folded, n=1, cutoff=NEAR)
            meant = f" Did you mean {quoted(folded[near[0]])}?" if near else ""
            listed = ", ".join(file.names[:20]) + (", ..." if len(file.names) > 20 else "")
            raise InputError(f"{option}: {file.source} has no column {quoted(name)}.{meant} Its columns are {listed}.")


def _fold(name: str) -> str:
    """Return a name in lower case, with blanks for underscores, dots and hyphens."""
    return re.sub(r"[\s_.-]+", " ", name.casefold()).strip()


@dataclass(frozen=True)
class ColumnFormat:
    """How a column is read.

    Args:
        kind: The kind of its values; None detects whether it contains numbers or categories.
        numbers: The format of numbers with a currency, percent sign or the like; None for plain numbers.
        dates: The format of dates; None for other kinds.
        forgiving: Whether unreadable cells of numbers or dates count as empty.
    """

    kind: column_types.Kind | None = None
    numbers: NumberFormat | None = None
    dates: DateFormat | None = None
    forgiving: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the format for `run.json`, so that new rows are read in the same way."""
        values: dict[str, Any] = {"kind": self.kind} | ({"forgiving": True} if self.forgiving else {})
        if self.numbers is not None:
            values |= {"mark": self.numbers.mark}
            values |= {} if self.numbers.decimal is None else {"decimal": self.numbers.decimal}
        return values | ({} if self.dates is None else {"dates": self.dates.way})

    @classmethod
    def from_json(cls, column: Mapping[str, Any]) -> ColumnFormat:
        """Return the format of a column in `run.json`."""
        numbers = NumberFormat(column["mark"], column.get("decimal")) if "mark" in column else None
        dates = DateFormat(column["dates"]) if column["kind"] == "date" else None
        return cls(column["kind"], numbers, dates, bool(column.get("forgiving")))


def convert_columns(
    frame: Any,
    path: Path | Source | str,
    formats: Mapping[str, ColumnFormat] | None = None,
    decimal: str = ".",
    odd: OddCells | None = None,
) -> tuple[Any, dict[str, column_types.Kind]]:
    """Return the table with columns of float64, text or dates, and the kind of each column.

    Missing text is None.

    Args:
        frame: A part of a table, from `read_table` or `read_chunks`.
        path: The file of the table, or another name of it, for messages.
        formats: How columns are read; the kind of other columns is detected.
        decimal: The decimal point of cells that are text.
        odd: Gets the cells of another kind than their column; None raises an error for them.
    """
    pd = pandas()
    columns: dict[str, Any] = {}
    kinds: dict[str, column_types.Kind] = {}
    for name in frame.columns:
        column_format, column = (formats or {}).get(name, ColumnFormat()), frame[name]
        if column_format.dates is not None:
            values, kinds[name] = _read_dates(column, path, column_format, odd), "date"
        else:
            numbers = column_format.numbers
            if column_format.forgiving:
                masked, numbers = mask_non_numbers(column, decimal, numbers), numbers or NumberFormat()
                _add_odd(odd, name, masked.isna().to_numpy() & column.notna().to_numpy())
                column = masked
            values, kinds[name] = _read_column(column, path, column_format.kind, decimal, numbers, odd)
        columns[name] = pd.Series(values, index=frame.index, dtype=values.dtype)
    return pd.DataFrame(columns, index=frame.index, columns=list(frame.columns)), kinds


def _add_odd(odd: OddCells | None, name: str, cells: NDArray[np.bool_]) -> None:
    """Add the odd cells of a column."""
    if odd is not None and cells.any():
        odd[name] = odd[name] | cells if name in odd else cells


def read_as_in_training(
    frame: Any, source: Source | str, decimal: str, facts: Mapping[str, Any]
) -> tuple[Any, OddCells]:
    """Return the inputs of a run's estimator, read from new rows in the same way as in training, and the odd cells.

    An odd cell, such as text among numbers, counts as missing. A column of mostly odd cells raises an error, because
    it is another column than in training.

    Args:
        frame: Rows of the file.
        source: The file of the rows, for messages.
        decimal: The decimal point of the file.
        facts: The contents of the run's `run.json`.
    """
    from ..tabular import column_types

    formats, odd = formats_in_training(facts), OddCells()
    inputs = convert_columns(frame[list(formats)], source, formats, decimal, odd)[0]
    for name, cells in odd.items():
        present = int(frame[name].notna().sum())
        if present >= LEAST_CELLS and cells.sum() > column_types.MOSTLY * present:
            convert_columns(frame[[name]], source, {name: replace(formats[name], forgiving=False)}, decimal)
    return inputs, odd


def most_odd(column: Any) -> int:
    """Return how many cells of a training column may be of another kind than the others."""
    present = int(column.notna().sum())
    return math.ceil(MOST_ODD * present) if present >= LEAST_CELLS else 0


def formats_in_training(facts: Mapping[str, Any]) -> dict[str, ColumnFormat]:
    """Return how each column was read in training, from the contents of the run's `run.json`."""
    return {column["name"]: ColumnFormat.from_json(column) for column in facts["columns"]}


def mask_non_numbers(column: Any, decimal: str, number_format: NumberFormat | None) -> Any:
    """Return a column with missing values in place of cells that are not numbers."""
    return column.mask(read_formatted(column, number_format or NumberFormat(), decimal)[1])


def _read_dates(
    column: Any, path: Path | Source | str, column_format: ColumnFormat, odd: OddCells | None
) -> NDArray[Any]:
    """Return a column of dates, or raise an error that names a cell that is not a date."""
    date_format = column_format.dates
    assert date_format is not None
    values, unreadable = read_dates(column, date_format)
    _add_odd(odd, column.name, unreadable)
    if unreadable.any() and odd is None and not column_format.forgiving:
        row = int(unreadable.argmax())
        raise InputError(
            f"{path}: column {quoted(column.name)} contains dates ({date_format.way}) in training, but row "
            f"{column.index[row]} contains {quoted(column.iloc[row])}. Write a date in this format, or leave the cell "
            "empty."
        )
    return values


def _read_column(
    column: Any,
    path: Path | Source | str,
    kind: column_types.Kind | None,
    decimal: str,
    number_format: NumberFormat | None,
    odd: OddCells | None,
) -> tuple[NDArray[Any], column_types.Kind]:
    """Return a column's values and their kind, which is `kind` unless that is None."""
    from ..tabular import column_types

    where = f"{path}: column {quoted(column.name)}"
    if column_types.contents_of(column) in ("dates", "durations") and kind != "category":
        raise InputError(f"{where} contains {column.dtype}. Convert it to numbers, such as days since the first date.")
    _require_plain(column, where)
    if kind == "category":
        return column_types.labels(column, column_types.cell_label), kind
    values, unreadable = column_types.read_numbers(column, decimal)
    if number_format is not None or (kind is not None and unreadable.any()):
        values, unreadable = read_formatted(column, number_format or NumberFormat(), decimal)
    if kind is None:
        kind = _kind_in_training(column, path, unreadable, strict=odd is None)
    elif unreadable.any() and odd is None:
        row, mark = int(unreadable.argmax()), "" if number_format is None else number_format.mark
        with_mark = f" with {mark}" if mark == PERCENT else f" with or without {mark}" if mark else ""
        raise InputError(
            f"{where} contains numbers{' with ' + mark if mark else ''} in training, but row {column.index[row]} "
            f"contains {quoted(column.iloc[row])}. Write a number{with_mark}, or leave the cell empty."
        )
    if kind == "category":
        return column_types.labels(column, column_types.cell_label), kind
    infinite = np.isinf(values)
    _add_odd(odd, column.name, unreadable | infinite)
    if odd is not None:
        values = np.where(infinite, np.nan, values)
    elif infinite.any():
        row = int(infinite.argmax())
        raise InputError(
            f"{where} contains {quoted(column.iloc[row])} in row {column.index[row]}, which is infinite. Write a "
            "finite number, or leave the cell empty."
        )
    return values, kind


def _require_plain(column: Any, where: str) -> None:
    """Raise an error for cells that hold lists, objects or bytes, as Parquet and JSON files can."""
    if column.dtype != object or _NESTED.isdisjoint(map(type, column)):
        return
    row, cell = next((row, cell) for row, cell in column.items() if type(cell) in _NESTED)
    what = f"{type(cell).__name__} values, as in row {row}"
    drop = f"--drop {shlex.quote(str(column.name))}"
    raise InputError(f"{where} contains {what}. Convert it to numbers or text, or leave it out with {drop}.")


def _kind_in_training(
    column: Any, path: Path | Source | str, unreadable: NDArray[np.bool_], *, strict: bool
) -> column_types.Kind:
    """Return the kind of a training column, or raise an error that says why it is unclear and what to do."""
    from ..tabular import column_types

    name, kind = quoted(column.name), column_types.kind_of_cells(column, unreadable)
    if kind == "mixed":
        if strict:
            raise InputError(f"{path}: {odd_words(column, unreadable, 'number')}")
        return "number"
    if kind == "commas":
        example, option = column.iloc[column_types.cells_with_commas(column).argmax()], shlex.quote(str(column.name))
        raise InputError(
            f"{path}: column {name} contains numbers with commas, such as {quoted(example)}. Write them with a decimal "
            f"point and without thousands separators, or use --categorical {option} or --drop {option}."
        )
    return kind


def odd_words(column: Any, odd: NDArray[np.bool_], kind: str) -> str:
    """Return sentences about the odd cells of a training column, and what to do."""
    row, option = int(odd.argmax()), shlex.quote(str(column.name))
    others = f" and {format_count(int(odd.sum()) - 1, 'more such cell')}" if odd.sum() > 1 else ""
    return (
        f"column {quoted(column.name)} contains {kind}s, but {quoted(column.iloc[row])} in row {column.index[row]}"
        f"{others}. Correct or empty such cells, or use --as {shlex.quote(f'{column.name}={kind}')} (counts them as "
        f"empty), --categorical {option} or --drop {option}."
    )
