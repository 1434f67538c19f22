"""Intervals that hold as many held-out targets as they say.

The predictive's noise is normal, and errors on real tables often are not: with the noise of the best CRPS, an interval
of 90 % may hold 86 % of the rows. Cross-validation knows by how much: an interval of some level is the predictive's own
central interval of another level, the one that held this share of held-out rows. (Their number counts as one more than
it is, with a row outside, as in conformal prediction.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from torch import Tensor

from ..predictive import RegressionPredictive
from .column_types import Numbers

# Levels between 0 and 1 that are kept.
STEPS = 1000

# Largest level that is taken; the interval of level 1 is infinite.
WIDEST = 1 - 1e-9


@dataclass(frozen=True)
class IntervalLevels:
    """Which level of the predictive's own interval to take for a level that is asked for.

    Args:
        own: Levels of the predictive's own interval, for each output at the levels 0, 1 / 1000, ..., 1 that are asked
            for: (outputs, 1001).
    """

    own: Numbers

    @classmethod
    def fit(cls, predictive: RegressionPredictive, target: Numbers, weights: Numbers | None) -> Self:
        """Learn from predictions of held-out rows (rows, outputs), their targets and weights."""
        needed = np.abs(2 * predictive.cdf(target).numpy() - 1)  # the level whose interval just holds the target
        counts = np.ones(len(needed)) if weights is None else weights
        levels = np.linspace(0, 1, STEPS + 1)
        found = []
        for column in needed.T:
            order = np.argsort(column)
            share = np.cumsum(counts[order]) / (counts.sum() + 1)
            found.append(np.interp(levels, [0.0, *share, 1.0], [0.0, *column[order], 1.0]))
        return cls(np.minimum(np.stack(found), WIDEST))

    def interval(self, predictive: RegressionPredictive, level: float) -> tuple[Tensor, Tensor]:
        """Return (lower, upper) of predictions (rows, outputs) at a level."""
        levels = np.linspace(0, 1, STEPS + 1)
        lower, upper = predictive.mean.clone(), predictive.mean.clone()
        for i, own in enumerate(self.own):
            part = RegressionPredictive(
                predictive.loc[..., i], predictive.scale[..., i], predictive.weights, predictive.noise
            )
            lower[:, i], upper[:, i] = part.interval(float(np.clip(np.interp(level, levels, own), 1e-9, WIDEST)))
        return lower, upper

    def transform(self, own: Numbers) -> Numbers:
        """Return probabilities of targets at or below y by these intervals, from the predictive's own, (rows, outputs).

        A target lies within the interval of a level where its transform is within level / 2 of a half.
        """
        levels = np.linspace(0, 1, STEPS + 1)
        away = np.stack([np.interp(np.abs(2 * p - 1), at, levels) for p, at in zip(own.T, self.own, strict=True)], 1)
        return 0.5 + 0.5 * np.sign(own - 0.5) * away
