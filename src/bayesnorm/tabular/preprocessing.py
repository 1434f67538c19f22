"""From a table of mixed columns to standardised numbers, the same way in training and after.

- A column of numbers becomes z = (value - median) / scale, scale the interquartile range over that of a normal
  distribution; |z| above 10 is drawn in logarithmically, so that 1e30 is far away but no harm. A missing value gets the
  median, and if there were any in training the column has a second feature that says so.
- A column of text or categories becomes one feature per category (the 30 most frequent ones that occur at least
  twice), one for all rarer ones together, and one for missing, where training has them. A category that is new later
  counts among the rare ones, or is none at all.
- A column of dates becomes a trend (its days, as a column of numbers), where the days differ enough the place in the
  year and the day of the week, and where times differ the place in the day (`date_column.py`).
- A column that never changes in training gives no feature.
- All features are then standardised; the standard deviation of a feature that is rarely on is taken as at least 0.1.

What a later row holds that training never did (a new category or day of the week, a missing value in a column that had
none, another value in a column that never changed) is told beside the features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import FileFormatError, InputError
from ..schema import anything, flag, just, listed, mapping, number, optional, record, text
from .column_types import ColumnValues, Numbers, is_text, read_columns
from .date_column import DateColumn
from .dates import is_date
from .encoded_columns import CategoricalColumn, NumericColumn

# Least standard deviation that a feature which is on or off is divided by.
LEAST_STD = 0.1

TableColumn = NumericColumn | CategoricalColumn | DateColumn


_NUMERIC = record(numeric=just(True), name=text, centre=optional(number()), scale=number(0), missing=flag)
_CATEGORICAL = record(numeric=just(False), name=text, categories=listed(text), rare=listed(text), missing=flag)
_DATES = record(
    numeric=just(False),
    trend=record(name=text, centre=optional(number()), scale=number(0), missing=flag),
    weekdays=optional(record(name=text, categories=listed(text), rare=listed(text), missing=flag)),
    year=flag,
    day=flag,
)
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
        columns = [_fitted(name, column) for name, column in zip(names, values, strict=True)]
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
            kind = _DATES if "trend" in fields else _CATEGORICAL if "categories" in fields else _NUMERIC
            kind(fields, "preprocessing.columns")
            columns.append(_restored(fields))
        found = cls(tuple(columns), np.array(config["mean"], float), np.array(config["std"], float))
        if not len(found.mean) == len(found.std) == len(found.feature_names):
            raise FileFormatError(f"path: {len(found.mean)} means for {len(found.feature_names)} features.")
        return found


def _fitted(name: str, values: ColumnValues) -> TableColumn:
    """Learn how to read a column from its training values."""
    kind = DateColumn if is_date(values) else CategoricalColumn if is_text(values) else NumericColumn
    return kind.fit(name, values)


def _restored(fields: dict[str, Any]) -> TableColumn:
    """Return the column that a part of `config()` described."""
    parts: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items() if k != "numeric"}
    if "trend" in fields:
        weekdays: Any = fields["weekdays"] and _restored(fields["weekdays"])
        return DateColumn(NumericColumn(**fields["trend"]), weekdays, fields["year"], fields["day"])
    return CategoricalColumn(**parts) if "categories" in fields else NumericColumn(**parts)


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
