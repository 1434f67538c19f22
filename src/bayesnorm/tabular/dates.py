"""Dates and times as columns hold them: datetime64 in seconds, what a clock there showed, without time zones.

A missing one is NaT. Times of day without a date are those of the first day of the year 1.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Dates = NDArray[np.datetime64]

DATE_OBJECTS = (datetime.date, datetime.time)
"""What single dates and times are; a datetime is a date too."""

# Seconds of a day.
DAY = 86_400


def is_date(column: NDArray[Any]) -> bool:
    """Return whether a column holds dates."""
    return column.dtype.kind == "M"


def no_dates(rows: int) -> Dates:
    """Return so many missing dates."""
    return np.full(rows, np.datetime64("NaT"), dtype="datetime64[s]")


def days(column: NDArray[Any]) -> NDArray[Any]:
    """Return dates as days since 1970, NaN where one is missing, and any other column as it is."""
    if not is_date(column):
        return column
    return np.where(np.isnat(column), np.nan, column.astype("datetime64[s]").astype(np.int64) / DAY)


def clock_time(value: datetime.date | datetime.time) -> datetime.datetime:
    """Return a date or time as what a clock there showed."""
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(datetime.date.min, value)
    elif not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    return value.replace(tzinfo=None)


def dates_of(column: Any) -> Dates:
    """Return a pandas series of dates, by its type or as objects."""
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        local = column if column.dt.tz is None else column.dt.tz_localize(None)
        found: Dates = local.to_numpy("datetime64[s]")
        return found
    found, present = no_dates(len(column)), column.notna().to_numpy()
    found[present] = [clock_time(value) for value in column[present]]
    return found


def date_text(value: np.datetime64) -> str:
    """Write a date, with its time where that is not midnight, or a time of day alone."""
    day, clock = str(value.astype("datetime64[s]")).split("T")
    clock = clock.removesuffix(":00")
    if day == "0001-01-01":
        return clock
    return day if clock == "00:00" else f"{day} {clock}"
