"""Tables of any make as plain columns: numbers with NaN for missing, or text with None for missing."""

from __future__ import annotations

import datetime
import math
import numbers
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from ..errors import InputError

Numbers = NDArray[np.float64]
Texts = NDArray[np.object_]
Column = NDArray[Any]


def read_columns(X: Any, names: Sequence[str] | None = None) -> tuple[list[str], list[Column]]:
    """Names and values of a table's columns.

    Columns of a data frame are numbers where their type says so, or where all their objects are numbers; other arrays
    have no types by column, so there text that can be read as a number is one.

    Args:
        X: A data frame, an array or a list of rows.
        names: What to call the columns of a table without names.
    """
    if isinstance(X, pd.DataFrame):
        return [str(name) for name in X.columns], [_of_series(str(name), X.iloc[:, i]) for i, name in enumerate(X)]
    values = check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
    names = [f"column {i}" for i in range(values.shape[1])] if names is None else list(names)
    if values.dtype.kind in "biuf":
        return names, [_finite(name, column) for name, column in zip(names, values.T.astype(np.float64), strict=True)]
    if values.dtype.kind in "mM":
        raise InputError(f"X: holds {values.dtype}; turn dates into numbers, such as days since the first.")
    return names, [_of_objects(name, values[:, i].astype(object), True) for i, name in enumerate(names)]


def is_text(column: Column) -> bool:
    """Whether a column holds text."""
    return column.dtype == object


def as_numbers(name: str, column: Column) -> Numbers:
    """A column as numbers; text that is none is an error."""
    if not is_text(column):
        return column
    found = np.full(len(column), np.nan)
    for row, value in enumerate(column):
        if value is not None:
            try:
                found[row] = float(value)
            except ValueError:
                raise InputError(
                    f"X: {shown(name)} holds numbers in training, but {value!r} in row {row}; a number, or a missing "
                    "value, would work."
                ) from None
    return _finite(name, found)


def as_texts(column: Column) -> Texts:
    """A column as text."""
    if is_text(column):
        return column
    found = np.empty(len(column), dtype=object)
    found[:] = [None if math.isnan(value) else label(value) for value in column]
    return found


def label(value: Any) -> str:
    """What a category is called: whole numbers without a decimal point, so that 1, 1.0 and "1" are the same."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))  # of any size: long ids differ in digits that no float has
    return str(int(float(value))) if float(value).is_integer() else str(value)


def shown(name: str) -> str:
    """A column's name in a message."""
    return name if name.startswith("column ") else f"column {name!r}"


def _of_series(name: str, series: Any) -> Column:
    kind = series.dtype
    if isinstance(kind, pd.SparseDtype):
        series = series.sparse.to_dense()
        kind = series.dtype
    if pd.api.types.is_complex_dtype(kind):
        raise InputError(f"X: column {name!r}: Complex data not supported; its real part would work.")
    if pd.api.types.is_datetime64_any_dtype(kind) or pd.api.types.is_timedelta64_dtype(kind):
        raise InputError(f"X: column {name!r} holds {kind}; turn dates into numbers, such as days since the first.")
    if pd.api.types.is_bool_dtype(kind) and not isinstance(kind, pd.CategoricalDtype):
        return series.astype("boolean").astype("Float64").to_numpy(np.float64, na_value=np.nan)
    if pd.api.types.is_numeric_dtype(kind):
        return _finite(name, series.to_numpy(np.float64, na_value=np.nan))
    values = series.astype(object).to_numpy(object)
    if isinstance(kind, pd.CategoricalDtype):
        return _labels(values)
    return _of_objects(name, values, False)


def _of_objects(name: str, values: Texts, readable: bool) -> Column:
    """Objects as numbers if all are, or can be read as such where that is wanted; else as text."""
    present = values[~pd.isna(values)]
    if any(isinstance(value, datetime.date | datetime.time | datetime.timedelta) for value in present):
        raise InputError(
            f"X: {shown(name)} holds dates or times; turn them into numbers, such as days since the first."
        )
    if all(isinstance(value, numbers.Real | Decimal | np.bool_) for value in present):
        found = np.full(len(values), np.nan)
        found[~pd.isna(values)] = present.astype(np.float64)
        return _finite(name, found)
    texts = _labels(values)
    if readable:
        try:
            return _finite(name, np.array([math.nan if text is None else float(text) for text in texts]))
        except ValueError:
            return texts
    return texts


def _labels(values: Texts) -> Texts:
    found = np.empty(len(values), dtype=object)
    found[:] = [None if missing else label(value) for value, missing in zip(values, pd.isna(values), strict=True)]
    return found


def _finite(name: str, values: Numbers) -> Numbers:
    bad = np.isinf(values)
    if bad.any():
        raise InputError(
            f"X: {shown(name)} holds infinity in row {int(bad.argmax())}; a number, or NaN for a missing value, would "
            "work."
        )
    return np.ascontiguousarray(values)
