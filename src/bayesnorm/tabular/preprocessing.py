"""From a table of mixed columns to standardised numbers, the same way in training and after.

- A column of numbers becomes z = (value - median) / scale, scale the interquartile range over that of a normal
  distribution; |z| above 10 is drawn in logarithmically, so that 1e30 is far away but no harm. A missing value gets the
  median, and if there were any in training the column has a second feature that says so.
- A column of text or categories becomes one feature per category (the 30 most frequent ones that occur at least
  twice), one for all rarer ones together, and one for missing, where training has them. A category that is new later
  counts among the rare ones, or is none at all.
- A column that never changes in training gives no feature.
- All features are then standardised; the standard deviation of a feature that is rarely on is taken as at least 0.1.

What a later row holds that training never did (a new category, a missing value in a column that had none, another value
in a column that never changed) is told beside the features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import FileFormatError, InputError
from ..schema import anything, flag, just, listed, mapping, number, optional, record, text
from .column_types import ColumnValues, Numbers, as_numbers, as_texts, is_text, read_columns

# Interquartile range of the standard normal distribution.
NORMAL_RANGE = 1.3489795

# Size of z up to which it is left alone.
LINEAR = 10.0

# Larger numbers are taken for this one, so that no difference overflows.
LARGEST = 1e300

# Categories of a column that have a feature of their own.
MOST_CATEGORIES = 30

# Rows below which a category is rare.
LEAST_ROWS = 2

# Least standard deviation that a feature which is on or off is divided by.
LEAST_STD = 0.1


@dataclass(frozen=True)
class NumericColumn:
    """How a column of numbers is read.

    Args:
        name: Name of the column.
        centre: Median of training; None where all values are missing.
        scale: What a deviation is divided by; 0 where all training values are the same.
        missing: Whether training has missing values.
    """

    name: str
    centre: float | None
    scale: float
    missing: bool

    @classmethod
    def fit(cls, name: str, values: Numbers) -> Self:
        """Learn from the column's training values."""
        known = np.clip(values[~np.isnan(values)], -LARGEST, LARGEST)
        if not len(known) or known.min() == known.max():
            return cls(name, float(known[0]) if len(known) else None, 0.0, bool(np.isnan(values).any()))
        low, centre, high = (float(q) for q in np.quantile(known, [0.25, 0.5, 0.75]))
        # Values that are mostly the same have no such range: then the standard deviation, kept from overflowing.
        peak = max(np.abs(known - centre).max(), np.finfo(np.float64).tiny)
        scale = (high - low) / NORMAL_RANGE or float(np.std(known / peak) * peak)
        return cls(name, centre, max(scale, float(np.finfo(np.float64).tiny)), bool(np.isnan(values).any()))

    @property
    def features(self) -> list[str]:
        """Names of the features that the column gives."""
        return [self.name] * (self.scale > 0) + [f"{self.name} is missing"] * self._sometimes_missing

    @property
    def _sometimes_missing(self) -> bool:
        """Whether some training values are missing, and some are not."""
        return self.missing and self.centre is not None

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return features, and which rows hold what training never did."""
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
    """How a column of text is read.

    Args:
        name: Name of the column.
        categories: Categories with a feature of their own.
        rare: Categories that share one.
        missing: Whether training has missing values.
    """

    name: str
    categories: tuple[str, ...]
    rare: tuple[str, ...]
    missing: bool

    @classmethod
    def fit(cls, name: str, values: ColumnValues) -> Self:
        """Learn from the column's training values."""
        counts = Counter(value for value in as_texts(values) if value is not None)
        ranked = sorted(counts, key=lambda category: (-counts[category], category))
        own = [category for category in ranked[:MOST_CATEGORIES] if counts[category] >= LEAST_ROWS]
        rare = sorted(set(ranked) - set(own))
        return cls(name, tuple(sorted(own)), tuple(rare), any(value is None for value in as_texts(values)))

    @property
    def features(self) -> list[str]:
        """Names of the features that the column gives."""
        if len(self.categories) + bool(self.rare) + self.missing < 2:
            return []
        own = [f"{self.name} = {category}" for category in self.categories]
        return own + [f"{self.name} = another"] * bool(self.rare) + [f"{self.name} is missing"] * self.missing

    def encode(self, column: ColumnValues) -> tuple[list[Numbers], NDArray[np.bool_]]:
        """Return features, and which rows hold what training never did."""
        values = as_texts(column)
        place = {category: i for i, category in enumerate(self.categories)}
        known = {*self.categories, *self.rare, *([None] if self.missing else [])}
        codes = np.array([-2 if value is None else place.get(value, -1) for value in values], dtype=np.int64)
        unseen = np.array([value not in known for value in values], dtype=bool)
        if not self.features:
            return [], unseen
        wanted = [*range(len(self.categories)), *[-1] * bool(self.rare), *[-2] * self.missing]
        return [(codes == code).astype(np.float64) for code in wanted], unseen


TableColumn = NumericColumn | CategoricalColumn


_NUMERIC = record(numeric=just(True), name=text, centre=optional(number()), scale=number(0), missing=flag)
_CATEGORICAL = record(numeric=just(False), name=text, categories=listed(text), rare=listed(text), missing=flag)
_CONFIG = record(columns=listed(mapping(anything), 1), mean=listed(number(), 1), std=listed(number(above=0), 1))
"""What `config()` consists of."""


@dataclass(frozen=True)
class Preprocessing:
    """What turns a table into a network's inputs; made by `fit`.

    Args:
        columns: How each column is read.
        mean, std: Mean and standard deviation of each feature in training.
    """

    columns: tuple[TableColumn, ...]
    mean: Numbers
    std: Numbers

    @classmethod
    def fit(cls, X: Any) -> Self:
        """Learn from a training table; see the module's text."""
        names, values = read_columns(X)
        columns: list[TableColumn] = [
            CategoricalColumn.fit(name, column) if is_text(column) else NumericColumn.fit(name, column)
            for name, column in zip(names, values, strict=True)
        ]
        features = _features(columns, values)[0]
        mean = features.mean(0)
        std = features.std(0)
        indicator = np.isin(features, (0.0, 1.0)).all(0)
        std = np.where(indicator, np.maximum(std, LEAST_STD), np.where(std > 0, std, 1.0))
        return cls(tuple(columns), mean, std)

    @property
    def names(self) -> list[str]:
        """Names of the table's columns."""
        return [column.name for column in self.columns]

    @property
    def feature_names(self) -> list[str]:
        """Names of the network's inputs."""
        return [name for column in self.columns for name in column.features] or ["nothing"]

    def transform(self, X: Any) -> Numbers:
        """Return the features of a table, (rows, features)."""
        return self.look(X)[0]

    def look(self, X: Any) -> tuple[Numbers, list[str]]:
        """Return the features of a table, and for each row the columns that hold what training never did, or ""."""
        _, values = read_columns(X, self.names)
        if len(values) != len(self.columns):
            raise InputError(f"X: has {len(values)} columns; {len(self.columns)}, those of training, would work.")
        features, unseen = _features(self.columns, values)
        told = [""] * len(features)
        for column, rows in zip(self.columns, unseen, strict=True):
            for row in np.flatnonzero(rows):
                told[row] += (", " if told[row] else "") + column.name
        return (features - self.mean) / self.std, told

    def config(self) -> dict[str, Any]:
        """Return what was learned as plain JSON values."""
        columns = [{"numeric": isinstance(column, NumericColumn), **asdict(column)} for column in self.columns]
        return {"columns": columns, "mean": self.mean.tolist(), "std": self.std.tolist()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the preprocessing that `config()` described."""
        _CONFIG(config, "preprocessing")
        columns: list[TableColumn] = []
        for fields in config["columns"]:
            (_CATEGORICAL if "categories" in fields else _NUMERIC)(fields, "preprocessing.columns")
            parts: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
            columns.append(NumericColumn(**parts) if parts.pop("numeric") else CategoricalColumn(**parts))
        found = cls(tuple(columns), np.array(config["mean"], float), np.array(config["std"], float))
        if not len(found.mean) == len(found.std) == len(found.feature_names):
            raise FileFormatError(f"path: {len(found.mean)} means for {len(found.feature_names)} features.")
        return found


def _features(columns: Sequence[TableColumn], values: list[ColumnValues]) -> tuple[Numbers, list[NDArray[np.bool_]]]:
    """Return features before they are standardised, and for each column which rows hold what training never did."""
    found: list[Numbers] = []
    unseen = []
    for column, own in zip(columns, values, strict=True):
        features, new = column.encode(own)
        found += features
        unseen.append(new)
    rows = len(values[0])
    return np.stack(found, 1) if found else np.zeros((rows, 1)), unseen
