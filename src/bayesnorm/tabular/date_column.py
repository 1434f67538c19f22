"""How a column of dates becomes features, learned from its training values.

- The trend: days, read as a column of numbers is, with its feature for missing ones.
- The place in the year, as sine and cosine, where the dates span a year: within less, the trend says the same.
- The day of the week, one feature each, where they span two weeks and most of them are not on one day of the month.
- The place in the day, as sine and cosine, where times of day differ.

A missing date has 0 for all but the trend.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .column_types import ColumnValues, Numbers, as_dates
from .dates import DAY, Dates, days
from .encoded_columns import CategoricalColumn, NumericColumn

# Days that the dates have to span for a place in the year, and for a day of the week.
YEAR, FORTNIGHT = 365, 14

# Share of dates on one day of the month above which they stand for months.
MONTHLY = 0.5

WEEKDAYS = np.array(["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"], dtype=object)
"""From the first of January 1970 on."""


@dataclass(frozen=True)
class DateColumn:
    """How a column of dates is read.

    Args:
        trend: How its days are read.
        weekdays: How its days of the week are read; None where they are not.
        year: Whether the place in the year is a feature.
        day: Whether the place in the day is one.
    """

    trend: NumericColumn
    weekdays: CategoricalColumn | None
    year: bool
    day: bool

    @classmethod
    def fit(cls, name: str, values: ColumnValues) -> Self:
        """Learn from the column's training values."""
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
        """Names of the features that the column gives."""
        circles = ["place in the year"] * self.year + ["place in the day"] * self.day
        named = [f"{self.name}: {circle}, {part}" for circle in circles for part in ("sine", "cosine")]
        return [*self.trend.features, *named, *(self.weekdays.features if self.weekdays else [])]

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return features, and which rows hold what training never did."""
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
    """Return places from 0 to 1 on a circle, whose end is its beginning."""
    return [np.sin(2 * np.pi * place), np.cos(2 * np.pi * place)]


def _seconds(known: Dates) -> NDArray[np.int64]:
    """Return seconds since midnight."""
    return known.astype("datetime64[s]").astype(np.int64) % DAY


def _weekdays(known: Dates) -> NDArray[np.object_]:
    """Return the names of days of the week."""
    found: NDArray[np.object_] = WEEKDAYS[known.astype("datetime64[D]").astype(np.int64) % 7]
    return found
