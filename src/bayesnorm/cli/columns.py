"""What columns hold: numbers or categories; the same in training and after."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from .tables import TableFile, pandas

Kind = Literal["number", "category"]

MOSTLY = 0.5
"""Share of numbers above which a column with some text among them is taken for a mistake."""


NUMBER_WITH_COMMAS = r"\s*[+-]?\d[\d.]*,[\d.,]*\d\s*"


def require_columns(file: TableFile, wanted: Sequence[str], what: str) -> None:
    """Refuse names that the table does not have, with the nearest one that it has.

    Args:
        file: The table.
        wanted: Names.
        what: Who wants them, such as "--target".
    """
    for name in wanted:
        if name not in file.names:
            near = difflib.get_close_matches(name, file.names, n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]!r}?" if near else "."
            there = ", ".join(file.names[:20]) + (", ..." if len(file.names) > 20 else "")
            raise InputError(f"{what}: {file.path} has no column {name!r}{meant} It has {there}.")


def typed(
    frame: Any,
    path: Path,
    *,
    categorical: Collection[str] = (),
    kinds: Mapping[str, Kind] | None = None,
    decimal: str = ".",
) -> tuple[Any, dict[str, Kind]]:
    """Columns as float64 or text, None where it is missing, and which is which.

    Args:
        frame: From `read_table` or `read_chunks`.
        path: Of the file, for messages.
        categorical: Names of columns that hold categories, whatever they look like.
        kinds: What columns were in training; None to find out.
        decimal: The decimal point of cells that are text.
    """
    pd = pandas()
    found, found_kinds = {}, {}
    for name in frame.columns:
        column = frame[name]
        if pd.api.types.is_datetime64_any_dtype(column.dtype) or pd.api.types.is_timedelta64_dtype(column.dtype):
            raise InputError(
                f"{path}: the column {name!r} holds {column.dtype}; turn it into numbers, such as days since the "
                "first, or leave it out with --drop."
            )
        kind = "category" if name in categorical else None if kinds is None else kinds[name]
        values = None if kind == "category" else _numbers(column, decimal)
        bad = np.zeros(len(column), bool) if values is None else (np.isnan(values) & column.notna().to_numpy())
        if kind is None:
            kind = _guess(path, column, bad)
        elif kind == "number" and bad.any():
            row = int(bad.argmax())
            raise InputError(
                f"{path}: the column {name!r} holds numbers in training, but {column.iloc[row]!r} in row "
                f"{column.index[row]}; a number, or an empty cell, would work."
            )
        if kind == "number":
            _require_finite(path, column, values)
        found[name] = values if kind == "number" else pd.Series(_texts(column), index=frame.index, dtype=object)
        found_kinds[name] = kind
    return pd.DataFrame(found, index=frame.index, columns=list(frame.columns)), found_kinds


def _numbers(column: Any, decimal: str) -> Any:
    """A column as numbers, NaN where it holds none."""
    pd = pandas()
    if pd.api.types.is_bool_dtype(column.dtype) or pd.api.types.infer_dtype(column, skipna=True) == "boolean":
        return np.full(len(column), np.nan)
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    if decimal != ".":
        points = column.str.contains(".", regex=False, na=False)  # which would stand for thousands
        column = column.mask(points, "?").str.replace(decimal, ".", regex=False)
    return pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)


def _guess(path: Path, column: Any, bad: Any) -> Kind:
    """Whether a column of training holds numbers; some text among many numbers is no category."""
    present = int(column.notna().sum())
    if not bad.any():
        return "number"
    if present - bad.sum() > MOSTLY * present:
        row = int(bad.argmax())
        raise InputError(
            f"{path}: the column {column.name!r} holds numbers, but {column.iloc[row]!r} in row {column.index[row]}; "
            f"mend or empty such cells, or give --categorical {column.name!r}, or --drop {column.name!r}."
        )
    commas = column.astype(str).str.fullmatch(NUMBER_WITH_COMMAS).to_numpy(bool)
    if commas.sum() > MOSTLY * present:
        raise InputError(
            f"{path}: the column {column.name!r} holds numbers with commas, such as {column.iloc[commas.argmax()]!r}; "
            f"write them with a decimal point alone, or give --categorical {column.name!r}, or --drop {column.name!r}."
        )
    return "category"


def _require_finite(path: Path, column: Any, values: Any) -> None:
    infinite = np.isinf(values)
    if infinite.any():
        row = int(infinite.argmax())
        raise InputError(
            f"{path}: the column {column.name!r} holds {column.iloc[row]!r} in row {column.index[row]}, which is "
            "infinite; a number, or an empty cell, would work."
        )


def _texts(column: Any) -> Any:
    """Text as objects; whole numbers without a decimal point, so that 1, 1.0 and "1" are the same."""
    texts = np.empty(len(column), dtype=object)
    texts[:] = [None if absent else _label(value) for value, absent in zip(column, column.isna(), strict=True)]
    return texts


def _label(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return re.sub(r"^([+-]?\d+)\.0+$", r"\1", str(value).strip())
