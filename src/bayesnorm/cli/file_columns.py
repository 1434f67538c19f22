"""Read the columns of a file as numbers, categories or dates; errors name the file.

`tabular/column_types.py` decides the kind of a column, for training and for new rows alike.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, quoted
from .table_source import Source
from .tables import TableFile, pandas
from .written_dates import WrittenDates, dates_in, read_dates
from .written_numbers import PERCENT, Written, read_written, written_in

if TYPE_CHECKING:
    from ..tabular.column_types import Kind


# Names longer than this many characters are not compared with similar ones, because that takes long.
LONGEST_COMPARED = 200

# Least similarity of two names, from 0 to 1, at which one is suggested for the other.
NEAR = 0.7


def require_columns(file: TableFile, wanted: Sequence[str], what: str) -> None:
    """Raise an error for a name that the table does not have, and suggest the most similar one.

    Args:
        file: The table.
        wanted: Names that it must have.
        what: The option or argument that needs them, such as "--target".
    """
    for name in wanted:
        if name not in file.names:
            short = [each for each in file.names if len(each) <= LONGEST_COMPARED >= len(name)]
            folded = {_folded(each): each for each in reversed(short)}
            near = difflib.get_close_matches(_folded(name), folded, n=1, cutoff=NEAR)
            meant = f" Did you mean {quoted(folded[near[0]])}?" if near else ""
            there = ", ".join(file.names[:20]) + (", ..." if len(file.names) > 20 else "")
            raise InputError(f"{what}: {file.source} has no column {quoted(name)}.{meant} Its columns are {there}.")


def _folded(name: str) -> str:
    """Return a name in lower case, with blanks for underscores, dots and hyphens."""
    return re.sub(r"[\s_.-]+", " ", name.casefold()).strip()


def typed(
    frame: Any,
    path: Path | Source,
    *,
    categorical: Collection[str] = (),
    kinds: Mapping[str, Kind] | None = None,
    forgiving: Collection[str] = (),
    decimal: str = ".",
    written: Mapping[str, Written] | None = None,
    dates: Mapping[str, WrittenDates] | None = None,
) -> tuple[Any, dict[str, Kind]]:
    """Return the table with columns of float64, text or dates, and the kind of each column.

    Missing text is None.

    Args:
        frame: A part of a table, from `read_table` or `read_chunks`.
        path: The file of the table, for messages.
        categorical: Names of columns to read as categories.
        kinds: The kinds of the columns in training; None detects them.
        forgiving: Names of number or date columns in which unreadable cells count as empty.
        decimal: The decimal point of cells that are text.
        written: The number formats of columns with a currency, percent sign or the like, from training.
        dates: The date formats of columns, from training.
    """
    pd = pandas()
    found: dict[str, Any] = {}
    found_kinds: dict[str, Kind] = {}
    for name in frame.columns:
        if dates and name in dates:
            values, found_kinds[name] = _dates(frame[name], path, dates[name], name in forgiving), "date"
            found[name] = pd.Series(values, index=frame.index)
            continue
        kind = "category" if name in categorical else None if kinds is None else kinds[name]
        how = (written or {}).get(name, Written() if name in forgiving else None)
        column = numbers_alone(frame[name], decimal, how) if name in forgiving else frame[name]
        values, found_kinds[name] = _typed_column(column, path, kind, decimal, how)
        found[name] = pd.Series(values, index=frame.index, dtype=values.dtype)
    return pd.DataFrame(found, index=frame.index, columns=list(frame.columns)), found_kinds


def as_in_training(frame: Any, file: TableFile, facts: Mapping[str, Any]) -> Any:
    """Return the inputs of a run's estimator, read from new rows in the same way as in training.

    Args:
        frame: Rows of the file.
        file: The file of the rows.
        facts: The contents of the run's `run.json`.
    """
    columns = facts["columns"]
    frame = frame[[column["name"] for column in columns]]
    kinds = {column["name"]: column["kind"] for column in columns}
    forgiving = [column["name"] for column in columns if column.get("forgiving")]
    known: Any = {"written": written_in(facts), "dates": dates_in(facts)}
    return typed(frame, file.source, kinds=kinds, forgiving=forgiving, decimal=file.decimal, **known)[0]


def numbers_alone(column: Any, decimal: str, written: Written | None) -> Any:
    """Return a column with missing values in place of cells that are not numbers."""
    return column.mask(read_written(column, written or Written(), decimal)[1])


def _dates(column: Any, path: Path | Source, written: WrittenDates, forgiving: bool) -> NDArray[Any]:
    """Return a column of dates, or raise an error that names a cell that is not a date."""
    values, unreadable = read_dates(column, written)
    if unreadable.any() and not forgiving:
        row = int(unreadable.argmax())
        raise InputError(
            f"{path}: column {quoted(column.name)} contains dates ({written.way}) in training, but row "
            f"{column.index[row]} contains {quoted(column.iloc[row])}. Write a date in this format, or leave the cell "
            "empty."
        )
    return values


def _typed_column(
    column: Any, path: Path | Source, kind: Kind | None, decimal: str, written: Written | None
) -> tuple[NDArray[Any], Kind]:
    """Return a column's values and their kind, which is `kind` unless that is None."""
    from ..tabular.column_types import cell_label, contents_of, labels, read_numbers

    where = f"{path}: column {quoted(column.name)}"
    if contents_of(column) in ("dates", "durations") and kind != "category":
        raise InputError(f"{where} contains {column.dtype}. Convert it to numbers, such as days since the first date.")
    _require_plain(column, where)
    if kind == "category":
        return labels(column, cell_label), kind
    values, unreadable = read_numbers(column, decimal)
    if written is not None or (kind is not None and unreadable.any()):
        values, unreadable = read_written(column, written or Written(), decimal)
    if kind is None:
        kind = _kind_in_training(column, path, unreadable)
    elif unreadable.any():
        row, mark = int(unreadable.argmax()), "" if written is None else written.mark
        with_mark = f" with {mark}" if mark == PERCENT else f" with or without {mark}" if mark else ""
        raise InputError(
            f"{where} contains numbers{' with ' + mark if mark else ''} in training, but row {column.index[row]} "
            f"contains {quoted(column.iloc[row])}. Write a number{with_mark}, or leave the cell empty."
        )
    if kind == "category":
        return labels(column, cell_label), kind
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise InputError(
            f"{where} contains {quoted(column.iloc[row])} in row {column.index[row]}, which is infinite. Write a "
            "finite number, or leave the cell empty."
        )
    return values, kind


def _require_plain(column: Any, where: str) -> None:
    """Raise an error for cells that hold lists, objects or bytes, as Parquet and JSON files can."""
    if column.dtype != object:
        return
    for row, cell in column.items():
        if isinstance(cell, list | tuple | dict | bytes | np.ndarray):
            what = f"{type(cell).__name__} values, as in row {row}"
            raise InputError(
                f"{where} contains {what}. Convert it to numbers or text, or leave it out with --drop {column.name}."
            )


def _kind_in_training(column: Any, path: Path | Source, unreadable: NDArray[np.bool_]) -> Kind:
    """Return the kind of a training column, or raise an error that says why it is unclear and what to do."""
    from ..tabular.column_types import cells_with_commas, kind_of_cells

    name, kind = quoted(column.name), kind_of_cells(column, unreadable)
    if kind == "mixed":
        row = int(unreadable.argmax())
        raise InputError(
            f"{path}: column {name} contains numbers, but {quoted(column.iloc[row])} in row {column.index[row]}. "
            f"Correct or empty such cells, or use --as {name}=number (counts them as empty), --categorical {name} or "
            f"--drop {name}."
        )
    if kind == "commas":
        example = column.iloc[cells_with_commas(column).argmax()]
        raise InputError(
            f"{path}: column {name} contains numbers with commas, such as {quoted(example)}. Write them with a decimal "
            f"point and without thousands separators, or use --categorical {name} or --drop {name}."
        )
    return kind
