"""Prediction intervals whose coverage is calibrated on held-out rows.

The noise of the predictive is normal, but errors on real tables often are not: with the noise of the best CRPS, a 90 %
interval can contain only 86 % of the rows. Cross-validation measures the difference. The interval of a level is the
predictive's central interval of another level, the one that contained this fraction of the held-out rows. (One row
outside the interval is added, as in conformal prediction.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from torch import Tensor

from ..predictive import RegressionPredictive
from .column_types import Numbers

# Number of steps between the levels 0 and 1.
STEPS = 1000

# Largest level that is used, because the interval of level 1 is infinite.
WIDEST = 1 - 1e-9


@dataclass(frozen=True)
class IntervalLevels:
    """A map from requested levels to levels of the predictive's own interval.

    Args:
        own: Levels of the predictive's own interval for the requested levels 0, 0.001, ..., 1: (outputs, 1001).
    """

    own: Numbers

    @classmethod
    def fit(cls, predictive: RegressionPredictive, target: Numbers, weights: Numbers | None) -> Self:
        """Fit the levels to the predictions of held-out rows, (rows, outputs), their targets and weights."""
        needed = np.abs(2 * predictive.cdf(target).numpy() - 1)  # the level of the smallest interval with the target
        counts = np.ones(len(needed)) if weights is None else weights
        levels = np.linspace(0, 1, STEPS + 1)
        found = []
        for column in needed.T:
            order = np.argsort(column)
            share = np.cumsum(counts[order]) / (counts.sum() + 1)
            found.append(np.interp(levels, [0.0, *share, 1.0], [0.0, *column[order], 1.0]))
        return cls(np.minimum(np.stack(found), WIDEST))

    def interval(self, predictive: RegressionPredictive, level: float) -> tuple[Tensor, Tensor]:
        """Return the intervals (lower, upper) of predictions, (rows, outputs), at a level."""
        levels = np.linspace(0, 1, STEPS + 1)
        lower, upper = predictive.mean.clone(), predictive.mean.clone()
        for i, own in enumerate(self.own):
            part = RegressionPredictive(
                predictive.loc[..., i], predictive.scale[..., i], predictive.weights, predictive.noise
            )
            lower[:, i], upper[:, i] = part.interval(float(np.clip(np.interp(level, levels, own), 1e-9, WIDEST)))
        return lower, upper

    def transform(self, own: Numbers) -> Numbers:
        """Return the CDF at the targets that these intervals imply, from the predictive's CDF, (rows, outputs).

        The interval of a level contains a target if the result is within level / 2 of 0.5.
        """
        levels = np.linspace(0, 1, STEPS + 1)
        away = np.stack([np.interp(np.abs(2 * p - 1), at, levels) for p, at in zip(own.T, self.own, strict=True)], 1)
        return 0.5 + 0.5 * np.sign(own - 0.5) * away
