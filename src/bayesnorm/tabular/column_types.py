"""Decide the kind of each column of a table: numbers, categories or dates.

Numbers are float64 (NaN if missing), categories are text as objects (None if missing), and dates are datetime64 (NaT if
missing; `dates.py`). In tables in memory, the user chose the types of the columns. In files most cells are text, and
`cli/written_dates.py` finds out which of them are dates.

| a column of | table in memory | file |
|---|---|---|
| numbers, of any type | numbers | numbers |
| booleans | numbers, 0 and 1 | categories |
| text that contains numbers | categories in a data frame, numbers in an array | numbers |
| other text, pandas categories | categories | categories, or numbers if all categories are numbers |
| dates and times, by type or as objects | dates | dates |
| durations | an error | an error |
| missing values only | categories if a data frame has the type object or text, else numbers | numbers |
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from bayesnorm_runtime import cell_label as cell_label, label as label

from ..errors import InputError, quoted
from .dates import DATE_OBJECTS, Dates, dates_of, is_date, no_dates

Numbers = NDArray[np.float64]
Texts = NDArray[np.object_]
ColumnValues = NDArray[Any]
"""Numbers, text or dates."""

Kind = Literal["number", "category", "date"]
"""The kind of a column, which decides its features."""

Contents = Literal["numbers", "truths", "complex numbers", "dates", "date objects", "durations", "categories", "text"]
"""The contents of a column, from its type or, if that is object, from its values."""

# Tests of a column's dtype, in this order; a dtype that passes none of them is object.
TYPES: dict[Contents, Callable[[Any], bool]] = {
    "categories": lambda dtype: isinstance(dtype, pd.CategoricalDtype),
    "complex numbers": pd.api.types.is_complex_dtype,
    "dates": pd.api.types.is_datetime64_any_dtype,
    "durations": pd.api.types.is_timedelta64_dtype,
    "truths": pd.api.types.is_bool_dtype,
    "numbers": pd.api.types.is_numeric_dtype,
    "text": lambda dtype: isinstance(dtype, pd.StringDtype),
}

# If more than this fraction of a column's cells are numbers, text among them is a mistake.
MOSTLY = 0.5

NUMBER_WITH_COMMAS = r"\s*[+-]?\d[\d.]*,[\d.,]*\d\s*"


def contents_of(column: Any) -> Contents:
    """Return the contents of a pandas series."""
    dtype = column.dtype.subtype if isinstance(column.dtype, pd.SparseDtype) else column.dtype
    contents = next((contents for contents, is_of_type in TYPES.items() if is_of_type(dtype)), None)
    if contents is not None:
        return contents
    types = set(map(type, column.dropna()))
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
    """Return the names and values of the columns of a table in memory.

    Args:
        X: A data frame, an array or a list of rows.
        names: Names for the columns of a table without names.
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
        raise InputError(f"X has the type {values.dtype}. Pass a data frame with columns of dates.")
    # The columns of an array have no types, so text that can be read as a number is a number.
    objects = values.astype(object)
    return names, [
        _column_in_memory(name, pd.Series(objects[:, i], dtype=object), text_may_be_numbers=True)
        for i, name in enumerate(names)
    ]


def read_numbers(column: Any, decimal: str = ".") -> tuple[Numbers, NDArray[np.bool_]]:
    """Return the cells of a file's column as numbers (else NaN), and which cells are neither empty nor a number.

    Args:
        column: A pandas series.
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
        points = column.str.contains(".", regex=False, na=False)  # a point would separate thousands
        column = column.mask(points, "?").str.replace(decimal, ".", regex=False)
    values = pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    return values, np.isnan(values) & present


def kind_of_cells(column: Any, unreadable: NDArray[np.bool_]) -> Kind | Literal["mixed", "commas"]:
    """Return the kind of a file's column; numbers mixed with a little text or with commas are never categories.

    Args:
        column: A pandas series.
        unreadable: Which cells are not numbers, from `read_numbers`.

    Returns:
        The kind, or why it is unclear: "mixed" if most cells are numbers and some are text, "commas" if most cells are
        numbers whose commas can be decimal points or thousands separators.
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
    """Return whether a column from `read_columns` contains categories."""
    return column.dtype == object


def as_dates(name: str, column: ColumnValues) -> Dates:
    """Return a column as dates, or raise an error if it contains anything else."""
    if is_date(column):
        return column
    present = column[[value is not None for value in column]] if is_text(column) else column[~np.isnan(column)]
    if len(present):
        raise InputError(
            f"X: {shown(name)} contains dates in training, but {quoted(str(present[0]))} now. Convert it with "
            "pandas.to_datetime."
        )
    return no_dates(len(column))


def as_numbers(name: str, column: ColumnValues) -> Numbers:
    """Return a column as numbers, or raise an error if it contains anything else."""
    if is_date(column):
        raise InputError(f"X: {shown(name)} contains numbers in training, but dates now. Pass numbers.")
    if not is_text(column):
        return column
    values, unreadable = _numbers_in_words(column)
    if unreadable.any():
        row = int(unreadable.argmax())
        raise InputError(
            f"X: {shown(name)} contains numbers in training, but {quoted(column[row])} in row {row} now. Pass a number "
            "or a missing value."
        )
    return _finite(name, values)


def as_texts(column: ColumnValues) -> Texts:
    """Return a column as text."""
    if is_text(column):
        return column
    return _texts([None if gap else label(value) for value, gap in zip(column, np.isnan(column), strict=True)])


def labels(column: Any, named: Any = label) -> Texts:
    """Return a pandas series as text, with None for missing values.

    Args:
        column: The series.
        named: `label`, or `cell_label` for the column of a file.
    """
    numbers, different = different_cells(column)
    return _texts([*map(named, different), None])[numbers]


def different_cells(column: Any) -> tuple[NDArray[np.intp], list[Any]]:
    """Return the different cells of a pandas series, and the number of each row's cell among them; -1 for missing.

    Equal cells of several types, such as 1, 1.0 and True, are different.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(np.intp), column.cat.categories.tolist()
    several_types = column.dtype == object and not set(map(type, column)) <= {str, float, type(None)}
    if several_types or isinstance(column.dtype, pd.SparseDtype):
        return np.where(column.isna(), -1, np.arange(len(column))), list(column)
    numbers, different = pd.factorize(column)
    return numbers, list(different)


def _texts(values: list[str | None]) -> Texts:
    texts = np.empty(len(values), dtype=object)
    texts[:] = values
    return texts


def shown(name: str) -> str:
    """Return a column's name for a message."""
    return name if name.startswith("column ") else f"column {quoted(name)}"


def _column_in_memory(name: str, series: Any, *, text_may_be_numbers: bool) -> ColumnValues:
    """Return a column of a table in memory as numbers, text or dates; see the table in the module's docstring."""
    contents = contents_of(series)
    if contents == "complex numbers":
        raise InputError(f"X: {shown(name)}: Complex data not supported. Pass real numbers.")
    if contents == "durations":
        raise InputError(f"X: {shown(name)} contains durations. Convert them to numbers, such as days.")
    if contents in ("dates", "date objects"):
        odd = [] if contents == "dates" else [v for v in series.dropna() if not isinstance(v, DATE_OBJECTS)]
        if odd:
            raise InputError(f"X: {shown(name)} contains dates and {quoted(str(odd[0]))}. Pass only dates.")
        return dates_of(series)
    if contents in ("numbers", "truths"):
        return _finite(name, _floats(series))
    texts = labels(series)
    if text_may_be_numbers:
        values, unreadable = _numbers_in_words(texts)
        if not unreadable.any():
            return _finite(name, values)
    return texts


def _numbers_in_words(texts: Texts) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return text of a table in memory as numbers, and which of it is not a number; "nan" is a missing number."""
    values, unreadable = read_numbers(pd.Series(texts, dtype=object))
    unreadable[unreadable] = [text.strip().lower() not in ("nan", "+nan", "-nan") for text in texts[unreadable]]
    return values, unreadable


def _floats(column: Any) -> Numbers:
    """Return a series of numbers or booleans as float64, with NaN for missing values."""
    if isinstance(column.dtype, pd.SparseDtype):
        column = column.sparse.to_dense()
    if column.dtype == object:
        values, present = np.full(len(column), np.nan), column.notna().to_numpy()
        values[present] = column.to_numpy(object)[present].astype(np.float64)
        return values
    if pd.api.types.is_bool_dtype(column.dtype):
        column = column.astype("boolean").astype("Float64")
    return column.to_numpy(np.float64, na_value=np.nan)


def _finite(name: str, values: Numbers) -> Numbers:
    """Return numbers unchanged, or raise an error if one is infinite."""
    bad = np.isinf(values)
    if bad.any():
        raise InputError(
            f"X: {shown(name)} contains infinity in row {int(bad.argmax())}. Pass a finite number, or NaN for a "
            "missing value."
        )
    return np.ascontiguousarray(values)
