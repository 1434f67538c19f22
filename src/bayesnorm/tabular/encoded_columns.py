"""Turn a column of numbers, text or dates into features; see `preprocessing.py`.

A column of dates becomes

- the trend: the number of days, encoded like a column of numbers, with a feature for missing dates;
- the time of year, as sine and cosine, if the dates span a year; over less than a year the trend has this information;
- the day of the week, one feature for each, if the dates span two weeks and are not mostly on one day of the month;
- the time of day, as sine and cosine, if times of day differ.

For a missing date, all features except the trend are 0.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..words import DAY
from .column_types import ColumnValues, Numbers, Texts, as_dates, as_numbers, as_texts
from .dates import Dates, days

# Interquartile range of the standard normal distribution.
NORMAL_RANGE = 1.3489795

# z is linear up to this size, and grows logarithmically above it.
LINEAR = 10.0

# Larger numbers are clipped to this one, so that no difference overflows.
LARGEST = 1e300

# Largest number of categories of a column that have a separate feature.
MOST_CATEGORIES = 30

# A category in fewer rows is rare.
LEAST_ROWS = 2


@dataclass(frozen=True)
class NumericColumn:
    """The encoding of a column of numbers.

    Args:
        name: Name of the column.
        centre: Median in training; None if all values are missing.
        scale: Divisor of the deviation from the median; 0 if all training values are the same.
        missing: Whether some training values are missing.
    """

    name: str
    centre: float | None
    scale: float
    missing: bool

    @classmethod
    def fit(cls, name: str, values: Numbers) -> Self:
        """Fit the encoding to the column's training values."""
        numbers, tiny = present(values), float(np.finfo(np.float64).tiny)
        missing = len(numbers) < len(values)
        if not len(numbers) or numbers.min() == numbers.max():
            return cls(name, float(numbers[0]) if len(numbers) else None, 0.0, missing)
        low, centre, high = (float(q) for q in np.quantile(numbers, [0.25, 0.5, 0.75]))
        # If most values are the same, the interquartile range is 0: use the standard deviation, without overflow.
        peak = max(np.abs(numbers - centre).max(), tiny)
        scale = (high - low) / NORMAL_RANGE or float(np.std(numbers / peak) * peak)
        return cls(name, centre, max(scale, tiny), missing)

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        return [self.name] * (self.scale > 0) + [f"{self.name} is missing"] * self._sometimes_missing

    @property
    def _sometimes_missing(self) -> bool:
        """Whether some, but not all, training values are missing."""
        return self.missing and self.centre is not None

    def as_in_training(self, column: ColumnValues) -> Numbers:
        """Return the values as numbers, or raise an error."""
        return as_numbers(self.name, column)

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return the features, and which rows have a value that does not occur in training."""
        values = np.clip(as_numbers(self.name, column), -LARGEST, LARGEST)
        absent = np.isnan(values)
        features: list[Numbers] = []
        unseen = absent & (not self.missing)
        if self.centre is None:
            unseen |= ~absent
        elif self.scale > 0:
            with np.errstate(over="ignore"):
                z = np.where(absent, 0.0, (values - self.centre) / self.scale)
            over = np.minimum(np.maximum(np.abs(z) - LINEAR, 0), LARGEST)
            features.append(np.clip(z, -LINEAR, LINEAR) + np.sign(z) * np.log1p(over))
        else:
            unseen |= ~absent & (values != self.centre)
        return features + [absent.astype(np.float64)] * self._sometimes_missing, unseen


@dataclass(frozen=True)
class CategoricalColumn:
    """The encoding of a column of text.

    Args:
        name: Name of the column.
        categories: Categories with a separate feature.
        rare: Categories that share one feature.
        missing: Whether some training values are missing.
    """

    name: str
    categories: tuple[str, ...]
    rare: tuple[str, ...]
    missing: bool

    @classmethod
    def fit(cls, name: str, values: ColumnValues) -> Self:
        """Fit the encoding to the column's training values."""
        counts = Counter(value for value in as_texts(values) if value is not None)
        ranked = sorted(counts, key=lambda category: (-counts[category], category))
        frequent = [category for category in ranked[:MOST_CATEGORIES] if counts[category] >= LEAST_ROWS]
        rare = sorted(set(ranked) - set(frequent))
        return cls(name, tuple(sorted(frequent)), tuple(rare), counts.total() < len(values))

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        if len(self.categories) + bool(self.rare) + self.missing < 2:
            return []
        names = [f"{self.name} = {category}" for category in self.categories]
        return names + [f"{self.name} = another"] * bool(self.rare) + [f"{self.name} is missing"] * self.missing

    def as_in_training(self, column: ColumnValues) -> Texts:
        """Return the values as text."""
        return as_texts(column)

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return the features, and which rows have a value that does not occur in training."""
        rows, different = pd.factorize(as_texts(column))  # the row number -1 stands for a missing value
        place = {category: i for i, category in enumerate(self.categories)}
        seen = {*self.categories, *self.rare}
        codes = np.array([*(place.get(value, -1) for value in different), -2], dtype=np.int64)[rows]
        unseen = np.array([*(value not in seen for value in different), not self.missing], dtype=bool)[rows]
        if not self.features:
            return [], unseen
        wanted = [*range(len(self.categories)), *[-1] * bool(self.rare), *[-2] * self.missing]
        return [(codes == code).astype(np.float64) for code in wanted], unseen


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
        dates = as_dates(name, values)
        dates = dates[~np.isnat(dates)]
        whole = np.floor(days(dates))
        span = whole.max() - whole.min() if len(dates) else 0
        month_days = dates.astype("datetime64[D]") - dates.astype("datetime64[M]").astype("datetime64[D]")
        monthly = len(dates) and np.unique(month_days, return_counts=True)[1].max() > MONTHLY * len(dates)
        weekdays = None
        if span >= FORTNIGHT and not monthly:
            weekdays = CategoricalColumn.fit(f"{name}: day of the week", _weekdays(dates))
        times = len(np.unique(_seconds(dates))) > 1
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

    def as_in_training(self, column: ColumnValues) -> Dates:
        """Return the values as dates, or raise an error."""
        return as_dates(self.name, column)

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return the features, and which rows have a value that does not occur in training."""
        values = as_dates(self.name, column)
        present = ~np.isnat(values)
        dates = values[present]
        features, unseen = self.trend.encode(days(values))
        parts: list[Numbers] = []
        if self.year:
            start = dates.astype("datetime64[Y]")
            length = ((start + 1).astype("datetime64[s]") - start.astype("datetime64[s]")).astype(np.int64)
            parts += _circle((dates - start.astype("datetime64[s]")).astype(np.int64) / length)
        if self.day:
            parts += _circle(_seconds(dates) / DAY)
        if self.weekdays is not None:
            names, new = self.weekdays.encode(_weekdays(dates))
            parts, unseen[present] = [*parts, *names], unseen[present] | new
        for part in parts:
            filled = np.zeros(len(values))
            filled[present] = part
            features.append(filled)
        return features, unseen


def _circle(place: Numbers) -> list[Numbers]:
    """Return the sine and cosine of positions from 0 to 1 on a circle."""
    return [np.sin(2 * np.pi * place), np.cos(2 * np.pi * place)]


def _seconds(dates: Dates) -> NDArray[np.int64]:
    """Return seconds since midnight."""
    return dates.astype("datetime64[s]").astype(np.int64) % DAY


def _weekdays(dates: Dates) -> Texts:
    """Return the days of the week."""
    return np.asarray(WEEKDAYS[dates.astype("datetime64[D]").astype(np.int64) % 7])


def present(values: Numbers) -> Numbers:
    """Return the values that are not missing, clipped to a finite range."""
    return np.clip(values[~np.isnan(values)], -LARGEST, LARGEST)
