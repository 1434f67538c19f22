"""Prediction intervals whose coverage is calibrated on held-out rows.

The noise of the predictive is normal, but errors on real tables often are not: with the noise of the best CRPS, a 90 %
interval can contain only 86 % of the rows. Cross-validation measures the difference. The interval of a level is the
predictive's central interval of another level, the one that contained this fraction of the held-out rows. (One row
outside the interval is added, as in conformal prediction.) For the rows of the cross-validation itself, the interval
width of each fold is calibrated on the other folds (`FoldLevels`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..predictive import RegressionPredictive
from .column_types import Numbers
from .search_results import OutOfFold

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


@dataclass(frozen=True, eq=False)
class FoldLevels:
    """Interval levels for the rows of a cross-validation, like `IntervalLevels`.

    Args:
        fold: The fold in which each row was held out.
        levels: For each fold the levels fitted on the other folds.
    """

    fold: NDArray[np.int64]
    levels: tuple[IntervalLevels, ...]

    @classmethod
    def fit(cls, held_out: OutOfFold) -> Self:
        """Fit the levels to the predictions of a cross-validation."""
        predictive, weight = held_out.predictive, held_out.weight
        assert isinstance(predictive, RegressionPredictive)
        found = []
        for k in range(int(held_out.fold.max()) + 1):
            others = held_out.fold != k
            weights = None if weight is None else weight[others]
            found.append(IntervalLevels.fit(_rows(predictive, others), held_out.target[others], weights))
        return cls(held_out.fold, tuple(found))

    def interval(self, predictive: RegressionPredictive, level: float) -> tuple[Tensor, Tensor]:
        """Return the intervals (lower, upper) of these rows at a level."""
        lower, upper = predictive.mean.clone(), predictive.mean.clone()
        for k, levels in enumerate(self.levels):
            own = self.fold == k
            if own.any():
                rows = torch.from_numpy(own)
                lower[rows], upper[rows] = levels.interval(_rows(predictive, own), level)
        return lower, upper

    def transform(self, own: Numbers) -> Numbers:
        """Return the CDF at the targets that these intervals imply, from the predictive's CDF."""
        found = np.empty_like(own)
        for k, levels in enumerate(self.levels):
            found[self.fold == k] = levels.transform(own[self.fold == k])
        return found


def _rows(predictive: RegressionPredictive, which: NDArray[np.bool_]) -> RegressionPredictive:
    """Return the predictive of some rows."""
    rows = torch.from_numpy(which)
    return RegressionPredictive(
        predictive.loc[:, rows], predictive.scale[:, rows], predictive.weights, predictive.noise, predictive.missing
    )
