"""Data frames of polars and Arrow as those of pandas, without another package: columns keep their kinds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError

# Types of polars whose columns become arrays of NumPy.
_NUMBERS = ("Float32", "Float64", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")


def as_pandas(X: Any) -> Any:
    """Return a table of polars or Arrow as a data frame of pandas, and any other table unchanged."""
    package, kind = type(X).__module__.partition(".")[0], type(X).__name__
    if package == "polars" and kind == "DataFrame":
        return pd.DataFrame({name: _polars_column(X[name]) for name in X.columns})
    if package == "polars" and kind == "LazyFrame":
        raise InputError("X is a LazyFrame of polars, whose rows are not computed yet. Pass X.collect().")
    if package == "pyarrow" and kind in ("Table", "RecordBatch"):
        return X.to_pandas()
    return X


def _polars_column(column: Any) -> Any:
    """Return a column of polars as a series of pandas; missing values become NaN, NaT or None."""
    kind = type(column.dtype).__name__ if not isinstance(column.dtype, type) else column.dtype.__name__
    if kind in _NUMBERS:
        return pd.Series(np.array(column.to_numpy()))
    if kind == "Datetime":
        # The local time of the column's time zone, as for pandas.
        return pd.Series(np.array(column.dt.replace_time_zone(None).to_numpy()))
    if kind in ("Date", "Duration"):
        return pd.Series(np.array(column.to_numpy()))
    return pd.Series(column.to_list(), dtype=object)
