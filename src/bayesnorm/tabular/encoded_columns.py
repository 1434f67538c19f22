"""Turn a column of numbers or text into features; see `preprocessing.py`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .column_types import ColumnValues, Numbers, as_numbers, as_texts

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
        known = np.clip(values[~np.isnan(values)], -LARGEST, LARGEST)
        if not len(known) or known.min() == known.max():
            return cls(name, float(known[0]) if len(known) else None, 0.0, bool(np.isnan(values).any()))
        low, centre, high = (float(q) for q in np.quantile(known, [0.25, 0.5, 0.75]))
        # If most values are the same, the interquartile range is 0: use the standard deviation, without overflow.
        peak = max(np.abs(known - centre).max(), np.finfo(np.float64).tiny)
        scale = (high - low) / NORMAL_RANGE or float(np.std(known / peak) * peak)
        return cls(name, centre, max(scale, float(np.finfo(np.float64).tiny)), bool(np.isnan(values).any()))

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        return [self.name] * (self.scale > 0) + [f"{self.name} is missing"] * self._sometimes_missing

    @property
    def _sometimes_missing(self) -> bool:
        """Whether some, but not all, training values are missing."""
        return self.missing and self.centre is not None

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return the features, and which rows have a value that does not occur in training."""
        values = np.clip(as_numbers(self.name, column), -LARGEST, LARGEST)
        absent = np.isnan(values)
        found: list[Numbers] = []
        unseen = absent & (not self.missing)
        if self.centre is None:
            unseen |= ~absent
        elif self.scale > 0:
            with np.errstate(over="ignore"):
                z = np.where(absent, 0.0, (values - self.centre) / self.scale)
            over = np.minimum(np.maximum(np.abs(z) - LINEAR, 0), LARGEST)
            found.append(np.clip(z, -LINEAR, LINEAR) + np.sign(z) * np.log1p(over))
        else:
            unseen |= ~absent & (values != self.centre)
        return found + [absent.astype(np.float64)] * self._sometimes_missing, unseen


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
        own = [category for category in ranked[:MOST_CATEGORIES] if counts[category] >= LEAST_ROWS]
        rare = sorted(set(ranked) - set(own))
        return cls(name, tuple(sorted(own)), tuple(rare), any(value is None for value in as_texts(values)))

    @property
    def features(self) -> list[str]:
        """Names of the column's features."""
        if len(self.categories) + bool(self.rare) + self.missing < 2:
            return []
        own = [f"{self.name} = {category}" for category in self.categories]
        return own + [f"{self.name} = another"] * bool(self.rare) + [f"{self.name} is missing"] * self.missing

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return the features, and which rows have a value that does not occur in training."""
        values = as_texts(column)
        place = {category: i for i, category in enumerate(self.categories)}
        known = {*self.categories, *self.rare, *([None] if self.missing else [])}
        codes = np.array([-2 if value is None else place.get(value, -1) for value in values], dtype=np.int64)
        unseen = np.array([value not in known for value in values], dtype=bool)
        if not self.features:
            return [], unseen
        wanted = [*range(len(self.categories)), *[-1] * bool(self.rare), *[-2] * self.missing]
        return [(codes == code).astype(np.float64) for code in wanted], unseen
