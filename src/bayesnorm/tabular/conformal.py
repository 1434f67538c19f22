"""Conformal prediction intervals over the folds of a cross-validation.

The score of a held-out row is the error of its fold's member divided by the standard deviation that the member
predicted. For a new row, the prediction of each member is shifted by the scores of its fold; the interval runs from the
a/2 to the 1 - a/2 quantile of all these values. This is the CV+ of Barber et al. (2021), normalised and with separate
tails, so that intervals can be asymmetric. If rows are exchangeable, the interval contains the target

- with probability at least 1 - 2 a - 2 (1 - 1/K) / (n/K + 1), for K folds of n rows; in practice about 1 - a;
- with probability at least 1 - a if there is one member (split conformal prediction).

The guarantee ignores that the setting, the number of epochs and the form of the noise were chosen on some of the same
rows. It needs no assumption about the network or the noise; if they fit badly, intervals are wide. With too few scores
for a level, an interval is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .column_types import Numbers

# Tolerance for rounding errors: the tail of the level 0.8 is not exactly 0.1 in binary.
ROUNDING = 1e-9

# Number of bisections, enough for full precision.
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class ConformalScores:
    """The conformal scores of one target.

    Args:
        scores: For each member the scores of the held-out rows of its fold, in ascending order.
    """

    scores: tuple[Numbers, ...]

    @classmethod
    def fit(cls, mean: Sequence[Numbers], std: Sequence[Numbers], target: Sequence[Numbers]) -> Self:
        """Return the scores, from each member's predictions for the rows of its fold, (rows,), and their targets."""
        parts = zip(mean, std, target, strict=True)
        return cls(tuple(np.sort((y - centre) / scale) for centre, scale, y in parts))

    @property
    def rows(self) -> int:
        """Number of scores."""
        return sum(len(own) for own in self.scores)

    def interval(self, mean: Numbers, std: Numbers, level: float) -> tuple[Numbers, Numbers]:
        """Return the intervals (lower, upper) of new rows.

        Args:
            mean, std: The mean and standard deviation that each member predicts for each row, (members, rows).
            level: The level 1 - a.
        """
        tail = (1 - level) / 2
        places = np.array([tail, 1 - tail]) * (self.rows + 1)
        low, high = int(np.floor(places[0] + ROUNDING)), int(np.ceil(places[1] - ROUNDING))
        lower = self._ordered(mean, std, low) if low >= 1 else np.full(mean.shape[1], -np.inf)
        upper = self._ordered(mean, std, high) if high <= self.rows else np.full(mean.shape[1], np.inf)
        return lower, upper

    def cdf(self, mean: Numbers, std: Numbers, y: Numbers) -> Numbers:
        """Return the conformal CDF at y for each row: the fraction of shifted predictions at or below y."""
        return self._count(mean, std, y) / (self.rows + 1)

    def _ordered(self, mean: Numbers, std: Numbers, place: int) -> Numbers:
        """Return the value of rank `place`, from 1, among all members' predictions shifted by their scores."""
        ends = np.array([[own[0], own[-1]] for own in self.scores])
        low = (mean + std * ends[:, :1]).min(0) - np.finfo(float).tiny
        high = (mean + std * ends[:, 1:]).max(0)
        for _ in range(HALVINGS):
            middle = low + (high - low) / 2
            enough = self._count(mean, std, middle) >= place
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def _count(self, mean: Numbers, std: Numbers, value: Numbers) -> NDArray[np.int64]:
        """Return for each row how many shifted predictions are at most `value`."""
        z = (value - mean) / std
        return np.sum([np.searchsorted(own, at, side="right") for own, at in zip(self.scores, z, strict=True)], axis=0)
