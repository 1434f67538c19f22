"""Counts of the training columns, for comparing new rows with them.

An estimator stores only counts and no rows: counts of categories, and of numbers or days between quantiles with at
least five rows each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..schema import anything, flag, listed, mapping, number, record, refuse, whole, with_tuples
from .column_types import ColumnValues, Numbers, as_texts, is_text
from .encoded_columns import CategoricalColumn, present
from .preprocessing import Preprocessing

Counts = NDArray[np.int64]

# Largest number of bins of a column of numbers, and smallest number of rows in each bin.
MOST_BINS, LEAST_ROWS = 64, 5

# A column with at most this many different numbers has one bin for each.
FEW_NUMBERS = 10

# Upper limit for counts in a file; sums of such counts are exact.
MOST_ROWS = 2**40

ROWS = whole(0, MOST_ROWS)
NUMBERS = record(edges=listed(number(), 0, MOST_BINS), single=flag, counts=listed(ROWS, 1, MOST_BINS + 1), missing=ROWS)
CATEGORIES = record(counts=mapping(ROWS), missing=ROWS)


@dataclass(frozen=True)
class NumberCounts:
    """The number of training values in each bin of a column of numbers.

    Args:
        edges: The upper ends of the bins, ascending; the last bin is above all edges.
        single: Whether there are few different numbers, each with two edges: just below it and at it.
        counts: Number of values in each bin, one more than there are edges.
        missing: Number of missing values.
    """

    edges: tuple[float, ...]
    single: bool
    counts: tuple[int, ...]
    missing: int

    @classmethod
    def fit(cls, values: Numbers) -> Self:
        """Count the column's training values."""
        numbers = present(values)
        edges = np.unique(numbers)
        single = len(edges) <= FEW_NUMBERS
        if single:
            edges = np.stack([np.nextafter(edges, -np.inf), edges], 1).ravel()
        else:
            bins = int(np.clip(len(numbers) // LEAST_ROWS, 2, MOST_BINS))
            edges = np.unique(np.quantile(numbers, np.arange(1, bins) / bins))
        empty = cls(tuple(edges.tolist()), single, (), len(values) - len(numbers))
        return replace(empty, counts=tuple(empty.count(numbers).tolist()))

    def count(self, numbers: Numbers) -> Counts:
        """Return the number of values in each bin."""
        return np.bincount(np.searchsorted(self.edges, numbers), minlength=len(self.edges) + 1)


@dataclass(frozen=True)
class CategoryCounts:
    """The number of training rows with each category.

    Args:
        counts: Number of rows, by category.
        missing: Number of missing values.
    """

    counts: dict[str, int]
    missing: int

    @classmethod
    def fit(cls, values: ColumnValues) -> Self:
        """Count the column's training values."""
        counts = Counter(value for value in as_texts(values) if value is not None)
        return cls(dict(counts), len(values) - counts.total())


@dataclass(frozen=True)
class TrainingColumns:
    """The counts of all training columns.

    Args:
        columns: The counts of each column, in the order of the table.
    """

    columns: tuple[NumberCounts | CategoryCounts, ...]

    @classmethod
    def fit(cls, values: Sequence[ColumnValues]) -> Self:
        """Count the values of training columns, from `TableRows`."""
        return cls(tuple((CategoryCounts if is_text(column) else NumberCounts).fit(column) for column in values))

    def config(self) -> list[dict[str, Any]]:
        """Return the counts as JSON values."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_config(cls, config: Any, preprocessing: Preprocessing) -> Self:
        """Return the counts from the JSON values of `config()`, for the columns of a preprocessing."""
        listed(mapping(anything), len(preprocessing.columns), len(preprocessing.columns))(config, "training_columns")
        columns: list[NumberCounts | CategoryCounts] = []
        for column, fields in zip(preprocessing.columns, config, strict=True):
            if isinstance(column, CategoricalColumn):
                CATEGORIES(fields, "training_columns")
                columns.append(CategoryCounts(**fields))
                continue
            NUMBERS(fields, "training_columns")
            counts = NumberCounts(**with_tuples(fields))
            if len(counts.counts) != len(counts.edges) + 1 or any(a >= b for a, b in pairwise(counts.edges)):
                refuse("training_columns", counts.edges, "ascending edges, with one more count than edges")
            columns.append(counts)
        return cls(tuple(columns))
