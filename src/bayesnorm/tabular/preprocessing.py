"""Turn a table of mixed columns into standardised features, in the same way for training and for new rows.

- A column of numbers becomes z = (value - median) / scale. The scale is the interquartile range divided by that of the
  standard normal distribution. |z| grows logarithmically above 10, so that outliers such as 1e30 do no harm. A missing
  value becomes the median. If training has missing values, a second feature marks them.
- A column of text or categories becomes one feature per category (the 30 most frequent ones that occur at least
  twice), one for all rarer categories together, and one for missing values, if training has them. A new category
  counts as rare; if training has no rare categories, all features are 0.
- A column of dates becomes a trend (its days, as a column of numbers). The time of year, the day of the week and the
  time of day are further features if they vary enough (`encoded_columns.py`).
- A column that is constant in training has no feature.
- All features are then standardised. The standard deviation of an indicator feature counts as at least 0.1.

`read` also returns which columns of a row have a value that does not occur in training: a new category or day of the
week, a missing value in a column without missing values, or another value in a constant column.

Of a table with more than 300 columns, the networks get only features that one of them uses (`column_checks.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import InputError
from ..schema import anything, flag, just, later, listed, number, optional, record, refuse, text, whole, with_tuples
from .column_types import ColumnValues, Numbers, is_text, read_columns
from .dates import days, is_date
from .encoded_columns import CategoricalColumn, DateColumn, NumericColumn

# Smallest standard deviation for standardising a feature of zeros and ones.
LEAST_STD = 0.1

# Largest number of columns that a sentence names.
MOST_NAMED = 10

TableColumn = NumericColumn | CategoricalColumn | DateColumn

_NUMBERS = {"name": text, "centre": optional(number()), "scale": number(0), "missing": flag}
_TEXTS = {"name": text, "categories": listed(text), "rare": listed(text), "missing": flag}
_DATES = record(numeric=just(False), trend=record(**_NUMBERS), weekdays=optional(record(**_TEXTS)), year=flag, day=flag)
_CONFIG = record(
    columns=listed(anything, 1),
    mean=listed(number(), 1),
    std=listed(number(above=0), 1),
    used=later(listed(whole())),
)
"""The structure of `config()`."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a table, read in the same way as training rows.

    Args:
        values: The columns: numbers, text, or dates as days.
        features: Standardised features, (rows, features).
        unseen: For each column, which rows have a value that does not occur in training.
        index: The labels of the rows; None for row numbers.
        names: The names of the columns.
    """

    values: list[ColumnValues]
    features: Numbers
    unseen: list[NDArray[np.bool_]]
    index: Any
    names: list[str]

    @property
    def unseen_columns(self) -> list[str]:
        """For each row the columns with a value that does not occur in training, separated by commas, or ""."""
        columns = defaultdict[int, list[str]](list)
        for name, rows in zip(self.names, self.unseen, strict=True):
            for row in np.flatnonzero(rows).tolist():
                columns[row].append(name)
        return joined_by_row(len(self.features), columns, ", ")


def joined_by_row(rows: int, texts: Mapping[int, list[str]], separator: str) -> list[str]:
    """Return the joined texts of each row, "" for rows without any."""
    joined = [""] * rows
    for row, parts in texts.items():
        joined[row] = separator.join(parts)
    return joined


@dataclass(frozen=True)
class Preprocessing:
    """The map from a table to the inputs of a network; `fit` creates it.

    Args:
        columns: The encoding of each column.
        mean, std: Mean and standard deviation of each feature in training.
        used: Numbers of the features that are the network's inputs, ascending; None for all features.
    """

    columns: tuple[TableColumn, ...]
    mean: Numbers
    std: Numbers
    used: tuple[int, ...] | None = None

    @classmethod
    def fit(cls, X: Any) -> Self:
        """Return the preprocessing for a training table; see the module's docstring."""
        names, values = read_columns(X)
        columns = list(map(_fitted, names, values))
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

    @property
    def inputs(self) -> int:
        """Number of the network's inputs."""
        return len(self.mean) if self.used is None else max(1, len(self.used))

    @property
    def groups(self) -> NDArray[np.int64]:
        """The number of the column of each feature, (features,)."""
        return np.arange(len(self.columns)).repeat([len(column.features) for column in self.columns])

    @property
    def widths(self) -> NDArray[np.int64]:
        """The number of inputs of the network for each column, (columns,)."""
        groups = self.groups if self.used is None else self.groups[list(self.used)]
        return np.bincount(groups, minlength=len(self.columns))

    @property
    def screening_words(self) -> str:
        """Sentences for the reader of a report about the columns that are used; "" if all columns are."""
        if self.used is None:
            return ""
        names = [self.names[number] for number in np.flatnonzero(self.widths)]
        if not names:
            return (
                f"None of the {len(self.columns):,} columns is associated with the target in the training rows, so the "
                "networks use none, and predictions hardly depend on the row."
            )
        more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
        return (
            f"The networks use {len(names):,} of the {len(self.columns):,} columns: "
            f"{', '.join(names[:MOST_NAMED])}{more}. In the training rows these seem to be associated with the target; "
            "up to half of them may be there by chance. Columns that matter only together with others are not found."
        )

    def network_inputs(self, features: Numbers) -> Numbers:
        """Return the network's inputs for features, (rows, features)."""
        if self.used is None:
            return features
        return features[:, list(self.used)] if self.used else np.zeros((len(features), 1))

    def transform(self, X: Any) -> Numbers:
        """Return the features of a table, (rows, features)."""
        return self.read(X).features

    def read(self, X: Any) -> TableRows:
        """Return the values and features of a table with the columns of training."""
        _, values = read_columns(X, self.names)
        if len(values) != len(self.columns):
            raise InputError(
                f"X has {len(values)} columns, but the training table had {len(self.columns)}. Pass the same columns "
                "as in training."
            )
        values = [column.as_in_training(raw) for column, raw in zip(self.columns, values, strict=True)]
        features, unseen = _features(self.columns, values)
        features = (features - self.mean) / self.std
        index = X.index if isinstance(X, pd.DataFrame) else None
        return TableRows([days(column) for column in values], features, unseen, index, self.names)

    def config(self) -> dict[str, Any]:
        """Return the preprocessing as JSON values."""
        columns = [{"numeric": isinstance(column, NumericColumn), **asdict(column)} for column in self.columns]
        used = {} if self.used is None else {"used": list(self.used)}
        return {"columns": columns, "mean": self.mean.tolist(), "std": self.std.tolist(), **used}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Return the preprocessing from the JSON values of `config()`."""
        _CONFIG(config, "preprocessing")
        mean, std = (np.array(config[name], float) for name in ("mean", "std"))
        used = config.get("used")
        columns = tuple(map(_restored, config["columns"]))
        preprocessing = cls(columns, mean, std, None if used is None else tuple(used))
        features = len(preprocessing.feature_names)
        if not len(mean) == len(std) == features:
            refuse("preprocessing.mean", f"{len(mean)} numbers", f"{features} numbers")
        if used and (used[-1] >= features or any(a >= b for a, b in pairwise(used))):
            refuse("preprocessing.used", used, f"ascending numbers below {features}")
        return preprocessing


def _fitted(name: str, values: ColumnValues) -> TableColumn:
    """Return the encoding of a column, fitted to its training values."""
    kind = DateColumn if is_date(values) else CategoricalColumn if is_text(values) else NumericColumn
    return kind.fit(name, values)


def _restored(fields: dict[str, Any]) -> TableColumn:
    """Return the encoding of a column from its part of `config()`."""
    numbers = "categories" not in fields
    kind = _DATES if "trend" in fields else record(numeric=just(numbers), **_NUMBERS if numbers else _TEXTS)
    kind(fields, "preprocessing.columns")
    parts = {name: value for name, value in with_tuples(fields).items() if name != "numeric"}
    if "trend" in fields:
        weekdays = fields["weekdays"] and CategoricalColumn(**with_tuples(fields["weekdays"]))
        return DateColumn(**parts | {"trend": NumericColumn(**fields["trend"]), "weekdays": weekdays})
    return NumericColumn(**parts) if numbers else CategoricalColumn(**parts)


def _features(columns: Sequence[TableColumn], values: list[ColumnValues]) -> tuple[Numbers, list[NDArray[np.bool_]]]:
    """Return features before standardising, and for each column which rows have a value that is not in training."""
    parts = [column.encode(raw) for column, raw in zip(columns, values, strict=True)]
    features = [feature for encoded, _ in parts for feature in encoded]
    return np.stack(features, 1) if features else np.zeros((len(values[0]), 1)), [unseen for _, unseen in parts]
