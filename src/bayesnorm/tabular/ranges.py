"""How far the numbers and dates of training reach: what lies clearly beyond is told, column by column.

A network says little about what lies beyond: where there is a trend its intervals soon hold nothing. Rows like those of
training lie outside their range now and then, by chance, and the fewer there are the farther: how far is seen on
training rows that were held out, each held against the other folds.
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

# Share of held-out training rows that lie within, over all columns, and how many times as far as that is clearly
# beyond: of new rows like 40 to 60 training rows 1 to 4 % are, of rows like more of them fewer.
QUANTILE, FARTHER = 0.995, 3.0

_RANGE = record(low=number(), high=number(), margin=number(0))


@dataclass(frozen=True)
class Range:
    """The least and the greatest value of training, and how far beyond is still within."""

    low: float
    high: float
    margin: float

    @classmethod
    def fit(cls, values: ColumnValues, folds: Sequence[NDArray[np.int64]], share: float) -> Self | None:
        """Learn from training values and the row numbers of each fold; None where there is no number.

        Args:
            values: The column's values, NaN where one is missing.
            folds: The row numbers of each fold.
            share: Share of held-out values that are to lie within.
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
        """Return which values lie clearly below those of training."""
        found: NDArray[np.bool_] = self.low - np.clip(values, -LARGEST, LARGEST) > self.margin
        return found

    def above(self, values: ColumnValues) -> NDArray[np.bool_]:
        """Return which values lie clearly above those of training."""
        found: NDArray[np.bool_] = np.clip(values, -LARGEST, LARGEST) - self.high > self.margin
        return found


@dataclass(frozen=True)
class Ranges:
    """The range of each column of a table; None for categories.

    Args:
        columns: The ranges, in the table's order.
    """

    columns: tuple[Range | None, ...]

    @classmethod
    def fit(cls, values: Sequence[ColumnValues], folds: Sequence[NDArray[np.int64]]) -> Self:
        """Learn from the columns of training, from `table_values`, and the row numbers of each fold."""
        share = 1 - (1 - QUANTILE) / max(1, sum(not is_text(own) for own in values))
        return cls(tuple(None if is_text(own) else Range.fit(own, folds, share) for own in values))

    def config(self) -> list[dict[str, float] | None]:
        """Return what was learned as plain JSON values."""
        return [None if each is None else dict(vars(each)) for each in self.columns]

    @classmethod
    def from_config(cls, config: Any, columns: int) -> Self:
        """Return what `config()` described, for so many columns."""
        listed(optional(_RANGE), columns, columns)(config, "ranges")
        found = tuple(None if each is None else Range(**each) for each in config)
        for each in found:
            if each is not None and each.low > each.high:
                refuse("ranges", each.low, f"at most {each.high:g}")
        return cls(found)
