"""Columns of a table in a file, as numbers, categories or dates; what is wrong with one is told with the file's name.

What a column holds is decided in `tabular/column_types.py`, the same in training and after.
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


# Characters of a name above which no similar ones are looked for, which would take long.
LONGEST_COMPARED = 200

# Share of their letters that names have in common where one may be meant for the other.
NEAR = 0.7


def require_columns(file: TableFile, wanted: Sequence[str], what: str) -> None:
    """Refuse names that the table does not have, with the nearest one that it has.

    Args:
        file: The table.
        wanted: Names that it should have.
        what: Who wants them, such as "--target".
    """
    for name in wanted:
        if name not in file.names:
            short = [each for each in file.names if len(each) <= LONGEST_COMPARED >= len(name)]
            folded = {_folded(each): each for each in reversed(short)}
            near = difflib.get_close_matches(_folded(name), folded, n=1, cutoff=NEAR)
            meant = f"; did you mean {quoted(folded[near[0]])}?" if near else "."
            there = ", ".join(file.names[:20]) + (", ..." if len(file.names) > 20 else "")
            raise InputError(f"{what}: {file.source} has no column {quoted(name)}{meant} It has {there}.")


def _folded(name: str) -> str:
    """Return a name without what people do not look at."""
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
    """Return the table with columns of float64, text or dates, None where text is missing, and which is which.

    Args:
        frame: A part of a table, from `read_table` or `read_chunks`.
        path: The file that it came from, for messages.
        categorical: Names of columns that hold categories, whatever they look like.
        kinds: What columns were in training; None to find out.
        forgiving: Names of columns of numbers or dates in which any other cell counts as empty.
        decimal: The decimal point of cells that are text.
        written: How columns are written whose numbers are not plain, from training.
        dates: How columns are written that hold dates, from training.
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
    """Return new rows as a run's estimator takes them: its columns, read as they were in training.

    Args:
        frame: Rows of the file.
        file: Where they come from.
        facts: What the run keeps of its training.
    """
    columns = facts["columns"]
    frame = frame[[column["name"] for column in columns]]
    kinds = {column["name"]: column["kind"] for column in columns}
    forgiving = [column["name"] for column in columns if column.get("forgiving")]
    known: Any = {"written": written_in(facts), "dates": dates_in(facts)}
    return typed(frame, file.source, kinds=kinds, forgiving=forgiving, decimal=file.decimal, **known)[0]


def numbers_alone(column: Any, decimal: str, written: Written | None) -> Any:
    """Return a column without the cells that hold no number."""
    return column.mask(read_written(column, written or Written(), decimal)[1])


def _dates(column: Any, path: Path | Source, written: WrittenDates, forgiving: bool) -> NDArray[Any]:
    """Return a column of dates, or say what is none."""
    values, unreadable = read_dates(column, written)
    if unreadable.any() and not forgiving:
        row = int(unreadable.argmax())
        raise InputError(
            f"{path}: the column {quoted(column.name)} holds dates ({written.way}) in training, but "
            f"{quoted(column.iloc[row])} in row {column.index[row]}; such a date, or an empty cell, would work."
        )
    return values


def _typed_column(
    column: Any, path: Path | Source, kind: Kind | None, decimal: str, written: Written | None
) -> tuple[NDArray[Any], Kind]:
    """Return a column's values and what they are, which is `kind` where that is known."""
    from ..tabular.column_types import cell_label, contents_of, labels, read_numbers

    where = f"{path}: the column {quoted(column.name)}"
    if contents_of(column) in ("dates", "durations") and kind != "category":
        raise InputError(f"{where} holds {column.dtype}; turn it into numbers, such as days since the first.")
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
        with_mark = f" with {mark}" if mark == PERCENT else f" with {mark} or without a sign" if mark else ""
        raise InputError(
            f"{where} holds numbers{' with ' + mark if mark else ''} in training, but {quoted(column.iloc[row])} in "
            f"row {column.index[row]}; a number{with_mark}, or an empty cell, would work."
        )
    if kind == "category":
        return labels(column, cell_label), kind
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise InputError(
            f"{where} holds {quoted(column.iloc[row])} in row {column.index[row]}, which is infinite; a number, "
            "or an empty cell, would work."
        )
    return values, kind


def _require_plain(column: Any, where: str) -> None:
    """Refuse cells that hold lists, objects or bytes, which files with types may have."""
    if column.dtype != object:
        return
    for row, cell in column.items():
        if isinstance(cell, list | tuple | dict | bytes | np.ndarray):
            what = f"{type(cell).__name__} values, as in row {row}"
            raise InputError(f"{where} holds {what}; numbers or text, or --drop to leave it out, would work.")


def _kind_in_training(column: Any, path: Path | Source, unreadable: NDArray[np.bool_]) -> Kind:
    """Return what a column of training is, or say why that cannot be told and what to do."""
    from ..tabular.column_types import cells_with_commas, kind_of_cells

    name, kind = quoted(column.name), kind_of_cells(column, unreadable)
    if kind == "mixed":
        row = int(unreadable.argmax())
        raise InputError(
            f"{path}: the column {name} holds numbers, but {quoted(column.iloc[row])} in row {column.index[row]}; "
            f"mend or empty such cells, or give --as {name}=number to take them for empty, "
            f"--categorical {name}, or --drop {name}."
        )
    if kind == "commas":
        example = column.iloc[cells_with_commas(column).argmax()]
        raise InputError(
            f"{path}: the column {name} holds numbers with commas, such as {quoted(example)}; "
            f"write them with a decimal point alone, or give --categorical {name}, or --drop {name}."
        )
    return kind
