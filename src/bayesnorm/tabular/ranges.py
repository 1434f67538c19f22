"""Detect numbers and dates that are clearly outside their range in training.

Networks extrapolate badly: with a trend in the data, intervals soon miss the targets outside the training range. By
chance, new rows of the same distribution also lie slightly outside the range, more so if there are few training rows.
Held-out training rows, compared with the other folds, show how far outside is normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ..schema import listed, number, optional, record, refuse
from .column_types import ColumnValues, is_text
from .encoded_columns import LARGEST
from .training_columns import present

# Fraction of held-out training rows within the margin, over all columns, and the factor on the margin. With 40 to 60
# training rows, 1 to 4 % of new rows of the same distribution are outside, and fewer with more training rows.
QUANTILE, FARTHER = 0.995, 3.0

_RANGE = record(low=number(), high=number(), margin=number(0))


@dataclass(frozen=True)
class Range:
    """The smallest and the largest value in training, and the margin that still counts as inside."""

    low: float
    high: float
    margin: float

    @classmethod
    def fit(cls, values: ColumnValues, folds: Sequence[NDArray[np.int64]], share: float) -> Self | None:
        """Return the range of training values; None if all values are missing.

        Args:
            values: The column's values, NaN if missing.
            folds: The row numbers of each fold.
            share: Fraction of held-out values that must be inside.
        """
        known = present(values)
        if not len(known):
            return None
        beyond = [np.zeros(1)]
        for fold in folds:
            others, held_out = present(np.delete(values, fold)), present(values[fold])
            if len(others):
                beyond.append(np.maximum(others.min() - held_out, held_out - others.max()).clip(0))
        margin = FARTHER * float(np.quantile(np.concatenate(beyond), share))
        return cls(float(known.min()), float(known.max()), margin)

    def below(self, values: ColumnValues) -> NDArray[np.bool_]:
        """Return which values are clearly below those of training."""
        found: NDArray[np.bool_] = self.low - np.clip(values, -LARGEST, LARGEST) > self.margin
        return found

    def above(self, values: ColumnValues) -> NDArray[np.bool_]:
        """Return which values are clearly above those of training."""
        found: NDArray[np.bool_] = np.clip(values, -LARGEST, LARGEST) - self.high > self.margin
        return found


@dataclass(frozen=True)
class Ranges:
    """The range of each column of a table; None for categories.

    Args:
        columns: The ranges, in the order of the table.
    """

    columns: tuple[Range | None, ...]

    @classmethod
    def fit(cls, values: Sequence[ColumnValues], folds: Sequence[NDArray[np.int64]]) -> Self:
        """Return the ranges of training columns, from `table_values`, with the row numbers of each fold."""
        share = 1 - (1 - QUANTILE) / max(1, sum(not is_text(own) for own in values))
        return cls(tuple(None if is_text(own) else Range.fit(own, folds, share) for own in values))

    def config(self) -> list[dict[str, float] | None]:
        """Return the ranges as JSON values."""
        return [None if each is None else dict(vars(each)) for each in self.columns]

    @classmethod
    def from_config(cls, config: Any, columns: int) -> Self:
        """Return the ranges of `columns` columns from the JSON values of `config()`."""
        listed(optional(_RANGE), columns, columns)(config, "ranges")
        found = tuple(None if each is None else Range(**each) for each in config)
        for each in found:
            if each is not None and each.low > each.high:
                refuse("ranges", each.low, f"at most {each.high:g}")
        return cls(found)
