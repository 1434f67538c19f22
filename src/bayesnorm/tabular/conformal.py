"""Intervals with a guarantee that holds for any data whose rows are exchangeable: conformal prediction over folds.

For each held-out row the error of its fold's member, divided by the deviation that the member predicted, is a score. A
new row's interval runs from the a/2 to the 1 - a/2 quantile of what the members say of it, each moved by the scores of
its own fold (the CV+ of Barber et al. 2021, normalised, with a tail on either side, so that intervals are as lopsided
as errors are). A target then lies within

- with probability 1 - 2 a at least, less 2 (1 - 1/K) / (n/K + 1), over K folds of n rows; in practice about 1 - a;
- with probability 1 - a at least where there is one member, whose fold nobody learned from (split conformal).

(Setting, epochs and the noise's form were chosen on some of the same rows, a few numbers, which this leaves out of
account.) Nothing is asked of the network or of the noise; where they are bad, intervals are wide. An interval that so
few scores cannot tell the end of has none: it is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .column_types import Numbers

# What a place may be off by because numbers are binary: the tail of a level of .8 is not quite .1.
ROUNDING = 1e-9

# Bisections of a bracket, down to the precision of numbers.
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """Scores of the held-out rows of one target.

    Args:
        scores: For each member the scores of the rows of its fold, in ascending order.
    """

    scores: tuple[Numbers, ...]

    @classmethod
    def fit(cls, mean: Sequence[Numbers], std: Sequence[Numbers], target: Sequence[Numbers]) -> Self:
        """Learn from what each member says of the rows of its own fold, (rows,), and from their targets."""
        parts = zip(mean, std, target, strict=True)
        return cls(tuple(np.sort((y - centre) / scale) for centre, scale, y in parts))

    @property
    def rows(self) -> int:
        """Number of scores."""
        return sum(len(own) for own in self.scores)

    def interval(self, mean: Numbers, std: Numbers, level: float) -> tuple[Numbers, Numbers]:
        """Return (lower, upper) of new rows.

        Args:
            mean, std: What each member says of each row, (members, rows).
            level: 1 - a.
        """
        tail = (1 - level) / 2
        places = np.array([tail, 1 - tail]) * (self.rows + 1)
        low, high = int(np.floor(places[0] + ROUNDING)), int(np.ceil(places[1] - ROUNDING))
        lower = self._ordered(mean, std, low) if low >= 1 else np.full(mean.shape[1], -np.inf)
        upper = self._ordered(mean, std, high) if high <= self.rows else np.full(mean.shape[1], np.inf)
        return lower, upper

    def cdf(self, mean: Numbers, std: Numbers, y: Numbers) -> Numbers:
        """Return the share of these values at or below y, for each row; intervals lie between two such shares."""
        return self._count(mean, std, y) / (self.rows + 1)

    def _ordered(self, mean: Numbers, std: Numbers, place: int) -> Numbers:
        """Return the value in so manieth place, from 1, of all members' predictions moved by their scores."""
        ends = np.array([[own[0], own[-1]] for own in self.scores])
        low = (mean + std * ends[:, :1]).min(0) - np.finfo(float).tiny
        high = (mean + std * ends[:, 1:]).max(0)
        for _ in range(HALVINGS):
            middle = low + (high - low) / 2
            enough = self._count(mean, std, middle) >= place
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def _count(self, mean: Numbers, std: Numbers, value: Numbers) -> NDArray[np.int64]:
        """Return how many of these values are at most `value`, for each row."""
        z = (value - mean) / std
        return np.sum([np.searchsorted(own, at, side="right") for own, at in zip(self.scores, z, strict=True)], axis=0)
