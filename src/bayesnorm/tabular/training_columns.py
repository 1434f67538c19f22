"""What an estimator remembers of the columns of training, so that those of new rows can be held against them.

Only counts are kept: of numbers, or days, between quantiles that lie at least five rows apart, and of categories. No
rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from ..schema import anything, flag, listed, mapping, number, record, refuse, whole
from .column_types import ColumnValues, Numbers, as_dates, as_numbers, as_texts, is_text, read_columns
from .date_column import DateColumn
from .dates import days
from .encoded_columns import LARGEST, CategoricalColumn
from .preprocessing import Preprocessing, TableColumn
from .two_samples import Counts

# Bins of a column of numbers at most, and rows in each of them at least.
MOST_BINS, LEAST_ROWS = 64, 5

# A column with at most so many different numbers has a bin for each.
FEW_NUMBERS = 10

# More rows than anybody has; their sums are exact.
MOST_ROWS = 2**40

ROWS = whole(0, MOST_ROWS)
NUMBERS = record(edges=listed(number(), 0, MOST_BINS), single=flag, counts=listed(ROWS, 1, MOST_BINS + 1), missing=ROWS)
CATEGORIES = record(counts=mapping(ROWS), missing=ROWS)


@dataclass(frozen=True)
class NumberCounts:
    """How many training values lie up to each edge and above the one before it.

    Args:
        edges: Rising; the last bin, above all of them, has none.
        single: Whether there are few different numbers: edges are pairs, just below each of them and at it.
        counts: Values in each bin, one more than there are edges.
        missing: Rows without a value.
    """

    edges: tuple[float, ...]
    single: bool
    counts: tuple[int, ...]
    missing: int

    @classmethod
    def fit(cls, values: Numbers) -> Self:
        """Learn from the column's training values."""
        known = present(values)
        edges = np.unique(known)
        single = len(edges) <= FEW_NUMBERS
        if single:
            edges = np.stack([np.nextafter(edges, -np.inf), edges], 1).ravel()
        else:
            bins = int(np.clip(len(known) // LEAST_ROWS, 2, MOST_BINS))
            edges = np.unique(np.quantile(known, np.arange(1, bins) / bins))
        found = cls(tuple(edges.tolist()), single, (), len(values) - len(known))
        return replace(found, counts=tuple(found.count(known).tolist()))

    def count(self, known: Numbers) -> Counts:
        """Return how many values lie in each bin."""
        return np.bincount(np.searchsorted(self.edges, known), minlength=len(self.edges) + 1)


@dataclass(frozen=True)
class CategoryCounts:
    """How often training has each category.

    Args:
        counts: Rows by category.
        missing: Rows without one.
    """

    counts: dict[str, int]
    missing: int

    @classmethod
    def fit(cls, values: ColumnValues) -> Self:
        """Learn from the column's training values."""
        known = [value for value in as_texts(values) if value is not None]
        return cls(dict(Counter(known)), len(values) - len(known))


@dataclass(frozen=True)
class TrainingColumns:
    """What training columns held, in the order of the table's.

    Args:
        columns: The counts of each.
    """

    columns: tuple[NumberCounts | CategoryCounts, ...]

    @classmethod
    def fit(cls, preprocessing: Preprocessing, X: Any) -> Self:
        """Learn from the table that a preprocessing was learned from."""
        values = table_values(preprocessing, X)
        return cls(tuple(CategoryCounts.fit(own) if is_text(own) else NumberCounts.fit(own) for own in values))

    def config(self) -> list[dict[str, Any]]:
        """Return what was learned as plain JSON values."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_config(cls, config: Any, preprocessing: Preprocessing) -> Self:
        """Return what `config()` described, for the columns of a preprocessing."""
        listed(mapping(anything), len(preprocessing.columns), len(preprocessing.columns))(config, "training_columns")
        found: list[NumberCounts | CategoryCounts] = []
        for column, fields in zip(preprocessing.columns, config, strict=True):
            if isinstance(column, CategoricalColumn):
                CATEGORIES(fields, "training_columns")
                found.append(CategoryCounts(**fields))
                continue
            NUMBERS(fields, "training_columns")
            edges, counts = fields["edges"], fields["counts"]
            if len(counts) != len(edges) + 1 or any(a >= b for a, b in pairwise(edges)):
                refuse("training_columns", edges, "rising edges, and one count more")
            found.append(NumberCounts(tuple(edges), fields["single"], tuple(counts), fields["missing"]))
        return cls(tuple(found))


def table_values(preprocessing: Preprocessing, X: Any) -> Sequence[ColumnValues]:
    """Return the columns of a table as they were in training: numbers, text, or dates as days."""
    _, values = read_columns(X, preprocessing.names)
    return [_as_in_training(column, own) for column, own in zip(preprocessing.columns, values, strict=True)]


def _as_in_training(column: TableColumn, values: ColumnValues) -> ColumnValues:
    if isinstance(column, DateColumn):
        return days(as_dates(column.name, values))
    return as_texts(values) if isinstance(column, CategoricalColumn) else as_numbers(column.name, values)


def present(values: Numbers) -> Numbers:
    """Return the values that are not missing, none beyond all measure."""
    return np.clip(values[~np.isnan(values)], -LARGEST, LARGEST)
