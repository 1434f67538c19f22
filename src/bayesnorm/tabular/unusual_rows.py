"""Find unusual rows, and the reasons.

A row is unusual if a column has a value that does not occur in training, if a number or date is clearly outside its
range in training (`Range`), or if the row as a whole is far from all training rows (`Likeness`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.covariance import ledoit_wolf

from ..errors import quoted
from ..schema import listed, number, optional, record, refuse
from ..words import format_day
from .column_types import ColumnValues, Numbers, is_text
from .encoded_columns import LARGEST, CategoricalColumn, DateColumn, present
from .preprocessing import Preprocessing, TableColumn, TableRows, joined_by_row

# Fraction of held-out training rows that are not unusual.
QUANTILE = 0.995

# With more features, covariances are ignored.
MOST_CORRELATED = 300

# Smallest variance of a direction, in standardised features; one-hot features have directions without variance.
RIDGE = 1e-6


@dataclass(frozen=True)
class Likeness:
    """The moments of the training features, and the threshold for unusual rows.

    Args:
        mean: Mean of each feature, (features,).
        root: A root of the inverse covariance, (features, features), or (features,) if covariances are ignored.
        threshold: The distance above which a row is unusual.
    """

    mean: Numbers
    root: Numbers
    threshold: float

    @classmethod
    def fit(cls, features: Numbers, folds: Sequence[NDArray[np.int64]]) -> Self:
        """Fit to training features, (rows, features), with the row numbers of each fold."""
        held_out = []
        for fold in folds:
            others = np.setdiff1d(np.arange(len(features)), fold)
            held_out.append(cls(*_moments(features[others]), 0.0).distance(features[fold]))
        return cls(*_moments(features), float(np.quantile(np.concatenate(held_out), QUANTILE)))

    def distance(self, features: Numbers) -> Numbers:
        """Return the distance: the root mean square deviation in whitened features, about 1 for training rows."""
        z = features - self.mean
        z = z @ self.root if self.root.ndim == 2 else z * self.root
        return np.sqrt(np.square(z).mean(1))

    def contributions(self, features: Numbers) -> Numbers:
        """Return the contribution of each feature to the squared distance, (rows, features)."""
        z = features - self.mean
        return z * (z @ self.root @ self.root.T if self.root.ndim == 2 else z * np.square(self.root))

    def unlike(self, features: Numbers) -> NDArray[np.bool_]:
        """Return which rows are unusual."""
        return self.distance(features) > self.threshold


def _moments(features: Numbers) -> tuple[Numbers, Numbers]:
    """Return the mean of features and a root of their inverse covariance; see `Likeness`."""
    if features.shape[1] > MOST_CORRELATED:
        return features.mean(0), 1 / np.sqrt(features.var(0) + RIDGE)
    covariance, _ = ledoit_wolf(features)
    values, vectors = np.linalg.eigh(covariance)
    return features.mean(0), vectors / np.sqrt(np.maximum(values, RIDGE))


# A value is outside if it is farther from the last training value than this many times the distance between that value
# and the one NEXT places before it, or farther from the quantile END than this many times its distance to the median.
# Of new rows with eight columns of the training distribution, 1 to 4 % are outside with 50 training rows (7 % with
# heavy tails), and below 1 % (3 %) with 200.
FARTHER, NEXT = 3.0, 4
BEYOND, END = 1.5, 0.02

# Positive columns are measured in logarithms if their tails differ by more than this share of the range between them.
SKEWED = 0.2

_RANGE = record(low=number(), high=number(), below=number(0), above=number(0))


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value in training, and the margins that still count as inside.

    Each end has its own margin, so that a long tail on one side does not hide values beyond the other side.

    Args:
        low, high: The smallest and the largest value.
        below, above: The margin below the smallest value, and above the largest.
    """

    low: float
    high: float
    below: float
    above: float

    @classmethod
    def fit(cls, values: ColumnValues) -> Self | None:
        """Return the range of training values, NaN if missing; None if all values are missing."""
        numbers = np.sort(present(values))
        if not len(numbers):
            return None
        low, high = float(numbers[0]), float(numbers[-1])
        # What is 0 or more does not become negative.
        return cls(low, high, 0.0 if low == 0 else _margin(numbers, -1.0), _margin(numbers, 1.0))

    def outside_below(self, values: ColumnValues) -> NDArray[np.bool_]:
        """Return which values are clearly below those of training."""
        return np.asarray(self.low - np.clip(values, -LARGEST, LARGEST) > self.below)

    def outside_above(self, values: ColumnValues) -> NDArray[np.bool_]:
        """Return which values are clearly above those of training."""
        return np.asarray(np.clip(values, -LARGEST, LARGEST) - self.high > self.above)


def _margin(numbers: Numbers, sign: float) -> float:
    """Return the margin of one end of sorted numbers: the upper end if the sign is 1, the lower end if it is -1."""
    low, median, high = np.quantile(numbers, [END, 0.5, 1 - END])
    logarithms = numbers[0] > 0 and high + low - 2 * median > SKEWED * (high - low)
    scale, back = (np.log, np.exp) if logarithms else (np.positive, np.positive)
    last, before = (numbers[-1], numbers[-1 - min(NEXT, len(numbers) - 1)])
    if sign < 0:
        last, before = numbers[0], numbers[min(NEXT, len(numbers) - 1)]
    end, middle = scale(high if sign > 0 else low), scale(median)
    with np.errstate(over="ignore"):
        farthest = float(sign * (back(end + BEYOND * (end - middle)) - last))
    return max(0.0, min(FARTHER * float(sign * (last - before)), farthest))


@dataclass(frozen=True)
class Ranges:
    """The range of each column of a table; None for categories.

    Args:
        columns: The ranges, in the order of the table.
    """

    columns: tuple[Range | None, ...]

    @classmethod
    def fit(cls, values: Sequence[ColumnValues]) -> Self:
        """Return the ranges of training columns, from `TableRows`."""
        return cls(tuple(None if is_text(column) else Range.fit(column) for column in values))

    def config(self) -> list[dict[str, float] | None]:
        """Return the ranges as JSON values."""
        return [None if limits is None else dict(vars(limits)) for limits in self.columns]

    @classmethod
    def from_config(cls, config: Any, columns: int) -> Self:
        """Return the ranges of `columns` columns from the JSON values of `config()`."""
        listed(optional(_RANGE), columns, columns)(config, "ranges")
        ranges = tuple(fields and Range(**fields) for fields in config)
        for limits in ranges:
            if limits is not None and limits.low > limits.high:
                refuse("ranges", limits.low, f"at most {limits.high:g}")
        return cls(ranges)


# Number of columns named in the reason for a row that is far away as a whole.
MOST_NAMED = 2


def reasons(preprocessing: Preprocessing, likeness: Likeness, ranges: Ranges, table: TableRows) -> list[str]:
    """Return for each row the reasons why it is unusual, joined by "; ", or "".

    Args:
        preprocessing: The encoding of the columns.
        likeness: The statistics for comparing whole rows.
        ranges: The ranges of the columns.
        table: The rows.
    """
    row_reasons = defaultdict[int, list[str]](list)
    for place, column in enumerate(preprocessing.columns):
        values = table.values[place]
        for row in np.flatnonzero(table.unseen[place]).tolist():
            row_reasons[row].append(f"{column.name} {_unseen(column, values[row])}")
        limits = ranges.columns[place]
        if limits is None:
            continue
        dated = isinstance(column, DateColumn)
        under, least = ("before", "earliest") if dated else ("below", "smallest")
        over, largest = ("after", "latest") if dated else ("above", "largest")
        for rows, word, limit, most in (
            (limits.outside_below(values), under, limits.low, least),
            (limits.outside_above(values), over, limits.high, largest),
        ):
            for row in np.flatnonzero(rows).tolist():
                row_reasons[row].append(f"{column.name} {word} {_shown(column, limit)}, the {most} in training")
    unlike = likeness.unlike(table.features)
    unlike[list(row_reasons)] = False
    far = np.flatnonzero(unlike).tolist()
    for row, names in zip(far, _farthest(preprocessing, likeness, table.features[far]), strict=True):
        row_reasons[row].append(f"far from all training rows, mainly because of {' and '.join(names)}")
    return joined_by_row(len(table.features), row_reasons, "; ")


def _unseen(column: TableColumn, value: object) -> str:
    """Return a phrase about a value that does not occur in training."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "is missing, but was never missing in training"
    shown = quoted(value) if isinstance(column, CategoricalColumn) else _shown(column, float(value))  # type: ignore[arg-type]
    if isinstance(column, DateColumn) and column.trend.scale > 0:
        return f"is {shown}, a day of the week that does not occur in training"
    return f"is {shown}, which does not occur in training"


def _shown(column: TableColumn, value: float) -> str:
    """Return a number or date of a column as text."""
    return format_day(value) if isinstance(column, DateColumn) else f"{value:.6g}"


def _farthest(preprocessing: Preprocessing, likeness: Likeness, features: Numbers) -> list[list[str]]:
    """Return for each row the columns with the largest contributions to its distance, largest first."""
    apart = likeness.contributions(features)
    ends = np.cumsum([len(column.features) for column in preprocessing.columns])
    names = [column.name for column in preprocessing.columns]
    shares = np.stack([part.sum(1) for part in np.split(apart, ends, axis=1)[: len(names)]], 1)
    order = np.argsort(-shares, axis=1, kind="stable")[:, :MOST_NAMED]
    return [[names[place] for place in row] for row in order]
