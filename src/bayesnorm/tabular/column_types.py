"""What the columns of a table hold: decided here, and nowhere else.

A column becomes numbers (float64, NaN where a value is missing), categories (text as objects, None where one is
missing) or dates (`dates.py`, NaT where one is missing). Tables in memory have types that their owner chose; cells of
a file are mostly text, whatever they mean: which of them are dates is found in `cli/written_dates.py`.

| a column of | table in memory | file |
|---|---|---|
| numbers, of any type | numbers | numbers |
| truth values | numbers, 0 and 1 | categories |
| text that reads as numbers | categories in a data frame, numbers in an array | numbers |
| other text, pandas' categories | categories | as the text is |
| dates and times by their type, or as objects | dates | dates |
| durations | refused | refused |
| nothing at all | categories if a data frame has it as objects or text, else numbers | numbers |
"""

from __future__ import annotations

import datetime
import numbers
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from ..errors import InputError, quoted
from .dates import DATE_OBJECTS, Dates, dates_of, is_date, no_dates

Numbers = NDArray[np.float64]
Texts = NDArray[np.object_]
ColumnValues = NDArray[Any]
"""Numbers, texts or dates."""

Kind = Literal["number", "category", "date"]
"""What a column is to a network."""

Contents = Literal["numbers", "truths", "complex numbers", "dates", "date objects", "durations", "categories", "text"]
"""What a column holds as it comes, by its type and, where that says nothing, by its values."""

# Share of numbers above which a column with some text among them is taken for a mistake.
MOSTLY = 0.5

NUMBER_WITH_COMMAS = r"\s*[+-]?\d[\d.]*,[\d.,]*\d\s*"
WHOLE_WITH_POINT = re.compile(r"^([+-]?\d+)\.0+$")


def contents_of(column: Any) -> Contents:
    """Return what a pandas series holds."""
    types, dtype = pd.api.types, column.dtype
    if isinstance(dtype, pd.SparseDtype):
        dtype = dtype.subtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "categories"
    if types.is_complex_dtype(dtype):
        return "complex numbers"
    if types.is_datetime64_any_dtype(dtype):
        return "dates"
    if types.is_timedelta64_dtype(dtype):
        return "durations"
    if types.is_bool_dtype(dtype):
        return "truths"
    if types.is_numeric_dtype(dtype):
        return "numbers"
    if isinstance(dtype, pd.StringDtype):
        return "text"
    return _contents_of_objects(column.dropna())


def _contents_of_objects(present: Any) -> Contents:
    """Return what objects are, none of which is missing."""
    types = set(map(type, present))
    if not types:
        return "text"
    if all(issubclass(kind, bool | np.bool_) for kind in types):
        return "truths"
    if any(issubclass(kind, datetime.timedelta) for kind in types):
        return "durations"
    if any(issubclass(kind, DATE_OBJECTS) for kind in types):
        return "date objects"
    if all(issubclass(kind, numbers.Real | Decimal | np.bool_) for kind in types):
        return "numbers"
    return "text"


def read_columns(X: Any, names: Sequence[str] | None = None) -> tuple[list[str], list[ColumnValues]]:
    """Return names and values of the columns of a table in memory.

    Args:
        X: A data frame, an array or a list of rows.
        names: What to call the columns of a table without names.
    """
    if isinstance(X, pd.DataFrame):
        return [str(name) for name in X.columns], [
            _column_in_memory(str(name), X.iloc[:, i], text_may_be_numbers=False) for i, name in enumerate(X)
        ]
    values = check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
    names = [f"column {i}" for i in range(values.shape[1])] if names is None else list(names)
    if values.dtype.kind in "biuf":
        return names, [_finite(name, column) for name, column in zip(names, values.T.astype(np.float64), strict=True)]
    if values.dtype.kind in "mM":
        raise InputError(f"X: holds {values.dtype}; a data frame with columns of dates would work.")
    # An array has no types by column, so text that can be read as a number is one.
    objects = values.astype(object)
    return names, [
        _column_in_memory(name, pd.Series(objects[:, i], dtype=object), text_may_be_numbers=True)
        for i, name in enumerate(names)
    ]


def read_numbers(column: Any, decimal: str = ".") -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the cells of a file's column as numbers, and which cells are there but hold none.

    Args:
        column: A pandas series; NaN stands in the numbers where a cell holds none.
        decimal: The decimal point of cells that are text.
    """
    contents = contents_of(column)
    if contents == "categories":
        return read_numbers(column.astype(object), decimal)
    present = column.notna().to_numpy()
    if contents == "truths":
        return np.full(len(column), np.nan), present
    if contents == "numbers":
        return _floats(column), np.zeros(len(column), bool)
    if contents == "text" and decimal != ".":
        points = column.str.contains(".", regex=False, na=False)  # which would stand for thousands
        column = column.mask(points, "?").str.replace(decimal, ".", regex=False)
    found = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return found, np.isnan(found) & present


def kind_of_cells(column: Any, unreadable: NDArray[np.bool_]) -> Kind | Literal["mixed", "commas"]:
    """Return what a file's column is; a few words among numbers and numbers with commas are never categories.

    Args:
        column: A pandas series.
        unreadable: Which cells hold no number, from `read_numbers`.

    Returns:
        The kind, or why it cannot be told: "mixed" where most cells are numbers, "commas" where most are numbers
        whose commas may stand for decimals or for thousands.
    """
    if not unreadable.any():
        return "number"
    present = int(column.notna().sum())
    if present - unreadable.sum() > MOSTLY * present:
        return "mixed"
    return "commas" if cells_with_commas(column).sum() > MOSTLY * present else "category"


def cells_with_commas(column: Any) -> NDArray[np.bool_]:
    """Return which cells look like numbers with commas."""
    return column.astype(str).str.fullmatch(NUMBER_WITH_COMMAS).to_numpy(bool)


def is_text(column: ColumnValues) -> bool:
    """Return whether a column from `read_columns` holds categories."""
    return column.dtype == object


def as_dates(name: str, column: ColumnValues) -> Dates:
    """Return a column as dates, as it was in training; what is none is an error."""
    if is_date(column):
        return column
    known = column[[value is not None for value in column]] if is_text(column) else column[~np.isnan(column)]
    if len(known):
        raise InputError(
            f"X: {shown(name)} holds dates in training, but {quoted(str(known[0]))}; dates by their type, as "
            "pandas.to_datetime gives them, would work."
        )
    return no_dates(len(column))


def as_numbers(name: str, column: ColumnValues) -> Numbers:
    """Return a column as numbers, as it was in training; text that is none is an error."""
    if is_date(column):
        raise InputError(f"X: {shown(name)} holds numbers in training, but dates now; numbers would work.")
    if not is_text(column):
        return column
    found, unreadable = _numbers_in_words(column)
    if unreadable.any():
        row = int(unreadable.argmax())
        raise InputError(
            f"X: {shown(name)} holds numbers in training, but {quoted(column[row])} in row {row}; a number, or a "
            "missing value, would work."
        )
    return _finite(name, found)


def as_texts(column: ColumnValues) -> Texts:
    """Return a column as text, as it was in training."""
    if is_text(column):
        return column
    found = np.empty(len(column), dtype=object)
    missing = np.isnan(column)
    found[:] = [None if gap else label(value) for value, gap in zip(column, missing, strict=True)]
    return found


def label(value: Any) -> str:
    """Return what a category is called: whole numbers without a decimal point, so that 1, 1.0 and "1" are the same."""
    if isinstance(value, str | bool | np.bool_) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))  # of any size: long ids differ in digits that no float has
    return str(int(float(value))) if float(value).is_integer() else str(value)


def cell_label(value: Any) -> str:
    """Return what a cell's category is called; writers of files put 1.0 where a column has gaps, and else 1."""
    return WHOLE_WITH_POINT.sub(r"\1", label(value).strip())


def labels(column: Any, named: Any = label) -> Texts:
    """Return a pandas series as text, None where a value is missing.

    Args:
        column: The series.
        named: `label`, or `cell_label` for a file's column.
    """
    found = np.empty(len(column), dtype=object)
    found[:] = [None if missing else named(value) for value, missing in zip(column, column.isna(), strict=True)]
    return found


def shown(name: str) -> str:
    """Return a column's name as it stands in a message."""
    return name if name.startswith("column ") else f"column {quoted(name)}"


def _column_in_memory(name: str, series: Any, *, text_may_be_numbers: bool) -> ColumnValues:
    """Return one column of a table in memory as numbers or text; see the module's table."""
    contents = contents_of(series)
    if contents == "complex numbers":
        raise InputError(f"X: {shown(name)}: Complex data not supported; its real part would work.")
    if contents == "durations":
        raise InputError(f"X: {shown(name)} holds durations; turn them into numbers, such as days.")
    if contents in ("dates", "date objects"):
        odd = [] if contents == "dates" else [v for v in series.dropna() if not isinstance(v, DATE_OBJECTS)]
        if odd:
            raise InputError(f"X: {shown(name)} holds dates and {quoted(str(odd[0]))}; dates alone would work.")
        return dates_of(series)
    if contents in ("numbers", "truths"):
        return _finite(name, _floats(series))
    texts = labels(series)
    if text_may_be_numbers:
        found, unreadable = _numbers_in_words(texts)
        if not unreadable.any():
            return _finite(name, found)
    return texts


def _numbers_in_words(texts: Texts) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return text of a table in memory as numbers, and which of it is none; the word nan is a missing number."""
    found, unreadable = read_numbers(pd.Series(texts, dtype=object))
    unreadable[unreadable] = [text.strip().lower() not in ("nan", "+nan", "-nan") for text in texts[unreadable]]
    return found, unreadable


def _floats(column: Any) -> Numbers:
    """Return a series of numbers or truth values as float64, NaN where a value is missing."""
    if isinstance(column.dtype, pd.SparseDtype):
        column = column.sparse.to_dense()
    if column.dtype == object:
        found = np.full(len(column), np.nan)
        present = column.notna().to_numpy()
        found[present] = column.to_numpy(object)[present].astype(np.float64)
        return found
    if pd.api.types.is_bool_dtype(column.dtype):
        column = column.astype("boolean").astype("Float64")
    return column.to_numpy(np.float64, na_value=np.nan)


def _finite(name: str, values: Numbers) -> Numbers:
    """Return numbers as they are, or refuse infinite ones."""
    bad = np.isinf(values)
    if bad.any():
        raise InputError(
            f"X: {shown(name)} holds infinity in row {int(bad.argmax())}; a number, or NaN for a missing value, would "
            "work."
        )
    return np.ascontiguousarray(values)
