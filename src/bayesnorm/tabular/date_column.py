"""Turn a column of dates into features.

- The trend: the number of days, encoded like a column of numbers, with a feature for missing dates.
- The time of year, as sine and cosine, if the dates span a year; over less than a year the trend has this information.
- The day of the week, one feature for each, if the dates span two weeks and are not mostly on one day of the month.
- The time of day, as sine and cosine, if times of day differ.

For a missing date, all features except the trend are 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..words import DAY
from .column_types import ColumnValues, Numbers, as_dates
from .dates import Dates, days
from .encoded_columns import CategoricalColumn, NumericColumn

# Smallest span of the dates, in days, for features of the year and of the day of the week.
YEAR, FORTNIGHT = 365, 14

# If more than this fraction of dates is on the same day of the month, the dates represent months.
MONTHLY = 0.5

WEEKDAYS = np.array(["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"], dtype=object)
"""The days of the week, starting with 1 January 1970."""


@dataclass(frozen=True)
class DateColumn:
    """The encoding of a column of dates.

    Args:
        trend: The encoding of the number of days.
        weekdays: The encoding of the day of the week; None if it is not a feature.
        year: Whether the time of year is a feature.
        day: Whether the time of day is a feature.
    """

    trend: NumericColumn
    weekdays: CategoricalColumn | None
    year: bool
    day: bool

    @classmethod
    def fit(cls, name: str, values: ColumnValues) -> Self:
        """Fit the encoding to the column's training values."""
        known = as_dates(name, values)
        known = known[~np.isnat(known)]
        whole = np.floor(days(known))
        span = whole.max() - whole.min() if len(known) else 0
        month_days = known.astype("datetime64[D]") - known.astype("datetime64[M]").astype("datetime64[D]")
        monthly = len(known) and np.unique(month_days, return_counts=True)[1].max() > MONTHLY * len(known)
        weekdays = None
        if span >= FORTNIGHT and not monthly:
            weekdays = CategoricalColumn.fit(f"{name}: day of the week", _weekdays(known))
        times = len(np.unique(_seconds(known))) > 1
        return cls(NumericColumn.fit(name, days(values)), weekdays, bool(span >= YEAR), times)

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.trend.name

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        circles = ["time of year"] * self.year + ["time of day"] * self.day
        named = [f"{self.name}: {circle}, {part}" for circle in circles for part in ("sine", "cosine")]
        return [*self.trend.features, *named, *(self.weekdays.features if self.weekdays else [])]

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return the features, and which rows have a value that does not occur in training."""
        values = as_dates(self.name, column)
        present = ~np.isnat(values)
        known = values[present]
        found, unseen = self.trend.encode(days(values))
        parts: list[Numbers] = []
        if self.year:
            start = known.astype("datetime64[Y]")
            length = ((start + 1).astype("datetime64[s]") - start.astype("datetime64[s]")).astype(np.int64)
            parts += _circle((known - start.astype("datetime64[s]")).astype(np.int64) / length)
        if self.day:
            parts += _circle(_seconds(known) / DAY)
        if self.weekdays is not None:
            names, new = self.weekdays.encode(_weekdays(known))
            parts, unseen[present] = [*parts, *names], unseen[present] | new
        for part in parts:
            filled = np.zeros(len(values))
            filled[present] = part
            found.append(filled)
        return found, unseen


def _circle(place: Numbers) -> list[Numbers]:
    """Return the sine and cosine of positions from 0 to 1 on a circle."""
    return [np.sin(2 * np.pi * place), np.cos(2 * np.pi * place)]


def _seconds(known: Dates) -> NDArray[np.int64]:
    """Return seconds since midnight."""
    return known.astype("datetime64[s]").astype(np.int64) % DAY


def _weekdays(known: Dates) -> NDArray[np.object_]:
    """Return the days of the week."""
    found: NDArray[np.object_] = WEEKDAYS[known.astype("datetime64[D]").astype(np.int64) % 7]
    return found
