"""Dates and times as datetime64 in seconds, in local time without time zones.

A missing date is NaT. A time of day without a date belongs to the first day of the year 1.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..words import DAY

Dates = NDArray[np.datetime64]

DATE_OBJECTS = (datetime.date, datetime.time)
"""The types of single dates and times; a datetime is also a date."""


def is_date(column: NDArray[Any]) -> bool:
    """Return whether a column contains dates."""
    return column.dtype.kind == "M"


def no_dates(rows: int) -> Dates:
    """Return `rows` missing dates."""
    return np.full(rows, np.datetime64("NaT"), dtype="datetime64[s]")


def days(column: NDArray[Any]) -> NDArray[Any]:
    """Return dates as days since 1970 (NaN if missing), and any other column unchanged."""
    if not is_date(column):
        return column
    return np.where(np.isnat(column), np.nan, column.astype("datetime64[s]").astype(np.int64) / DAY)


def clock_time(value: datetime.date | datetime.time) -> datetime.datetime:
    """Return a date or time as a datetime in local time."""
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date.min, value)
    elif not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return value.replace(tzinfo=None)


def dates_of(column: Any) -> Dates:
    """Return a pandas series of dates, by type or as objects, as datetime64."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        local = column if column.dt.tz is None else column.dt.tz_localize(None)
        return np.asarray(local.to_numpy("datetime64[s]"))
    dates, present = no_dates(len(column)), column.notna().to_numpy()
    dates[present] = [clock_time(value) for value in column[present]]
    return dates
