"""Prediction intervals whose coverage is calibrated on held-out rows: of the predictive, and conformal.

**Of the predictive.** Its noise is normal, but errors on real tables often are not: with the noise of the best CRPS, a
90 % interval can contain only 86 % of the rows. Cross-validation measures the difference. The interval of a level is
the predictive's central interval of another level, the one that contained this fraction of the held-out rows. (One row
outside the interval is added, as in conformal prediction.) For the rows of the cross-validation itself, the interval
width of each fold is calibrated on the other folds (`FoldLevels`).

**Conformal.** The score of a held-out row is the error of its fold's member divided by the standard deviation that the
member predicted. For a new row, the prediction of each member is shifted by the scores of its fold; the interval runs
from the a/2 to the 1 - a/2 quantile of all these values. This is the CV+ of Barber et al. (2021), normalised and with
separate tails, so that intervals can be asymmetric. If rows are exchangeable, the interval contains the target

- with probability at least 1 - 2 a - 2 (1 - 1/K) / (n/K + 1), for K folds of n rows; in practice about 1 - a;
- with probability at least 1 - a if there is one member (split conformal prediction).

The guarantee ignores that the setting, the number of epochs and the form of the noise were chosen on some of the same
rows. It needs no assumption about the network or the noise; if they fit badly, intervals are wide. With too few scores
for a level, an interval is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..predictive import Predictive, RegressionPredictive
from .column_types import Numbers

# Levels between 0 and 1 at which intervals of the predictive are calibrated.
LEVELS = np.linspace(0, 1, 1001)

# Largest level that is used, because the interval of level 1 is infinite.
WIDEST = 1 - 1e-9

# Tolerance for rounding errors: the tail of the level 0.8 is not exactly 0.1 in binary.
ROUNDING = 1e-9

# Number of bisections, enough for full precision.
HALVINGS = 60


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Cross-validated predictions of the training rows, with the uncertainty of the whole model.

    No member predicts a row that it was trained on. The noise (a factor, a floor and heavy tails) was chosen on these
    rows.

    Args:
        rows: Row numbers in X, without rows of weight 0.
        fold: The fold in which each row was held out.
        target: Targets in their own units, (rows, outputs), or class numbers, (rows,).
        weight: Weight of each row, with mean 1; None for equal weights.
        predictive: The predictive distributions, in the order of `rows`.
    """

    rows: NDArray[np.int64]
    fold: NDArray[np.int64]
    target: NDArray[Any]
    weight: NDArray[np.float64] | None
    predictive: Predictive


@dataclass(frozen=True)
class IntervalLevels:
    """A map from requested levels to levels of the predictive's own interval.

    Args:
        levels: Levels of the predictive's own interval for the requested `LEVELS`, (outputs, 1001).
    """

    levels: Numbers

    @classmethod
    def fit(cls, predictive: RegressionPredictive, target: Numbers, weights: Numbers | None) -> Self:
        """Fit the levels to the predictions of held-out rows, (rows, outputs), their targets and weights."""
        needed = np.abs(2 * predictive.cdf(target).numpy() - 1)  # the level of the smallest interval with the target
        counts = np.ones(len(needed)) if weights is None else weights
        levels = []
        for column in needed.T:
            order = np.argsort(column)
            share = np.cumsum(counts[order]) / (counts.sum() + 1)
            levels.append(np.interp(LEVELS, [0.0, *share, 1.0], [0.0, *column[order], 1.0]))
        return cls(np.minimum(np.stack(levels), WIDEST))

    def interval(self, predictive: RegressionPredictive, level: float) -> tuple[Tensor, Tensor]:
        """Return the intervals (lower, upper) of predictions, (rows, outputs), at a level."""
        lower, upper = predictive.mean.clone(), predictive.mean.clone()
        for i, levels in enumerate(self.levels):
            part = RegressionPredictive(
                predictive.loc[..., i], predictive.scale[..., i], predictive.weights, predictive.noise
            )
            lower[:, i], upper[:, i] = part.interval(float(np.clip(np.interp(level, LEVELS, levels), 1e-9, WIDEST)))
        return lower, upper

    def transform(self, cdf: Numbers) -> Numbers:
        """Return the CDF at the targets that these intervals imply, from the predictive's CDF, (rows, outputs).

        The interval of a level contains a target if the result is within level / 2 of 0.5.
        """
        columns = zip(np.abs(2 * cdf - 1).T, self.levels, strict=True)
        away = np.stack([np.interp(needed, levels, LEVELS) for needed, levels in columns], 1)
        return 0.5 + 0.5 * np.sign(cdf - 0.5) * away


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
        parts = []
        for k in range(int(held_out.fold.max()) + 1):
            others = held_out.fold != k
            weights = None if weight is None else weight[others]
            parts.append(IntervalLevels.fit(_rows(predictive, others), held_out.target[others], weights))
        return cls(held_out.fold, tuple(parts))

    def interval(self, predictive: RegressionPredictive, level: float) -> tuple[Tensor, Tensor]:
        """Return the intervals (lower, upper) of these rows at a level."""
        lower, upper = predictive.mean.clone(), predictive.mean.clone()
        for k, levels in enumerate(self.levels):
            inside = self.fold == k
            if inside.any():
                rows = torch.from_numpy(inside)
                lower[rows], upper[rows] = levels.interval(_rows(predictive, inside), level)
        return lower, upper

    def transform(self, cdf: Numbers) -> Numbers:
        """Return the CDF at the targets that these intervals imply, from the predictive's CDF."""
        transformed = np.empty_like(cdf)
        for k, levels in enumerate(self.levels):
            transformed[self.fold == k] = levels.transform(cdf[self.fold == k])
        return transformed


def _rows(predictive: RegressionPredictive, which: NDArray[np.bool_]) -> RegressionPredictive:
    """Return the predictive of some rows."""
    rows = torch.from_numpy(which)
    return RegressionPredictive(
        predictive.loc[:, rows], predictive.scale[:, rows], predictive.weights, predictive.noise, predictive.missing
    )


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
        return sum(map(len, self.scores))

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
        ends = np.array([[scores[0], scores[-1]] for scores in self.scores])
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
        parts = zip(self.scores, z, strict=True)
        return np.sum([np.searchsorted(scores, at, side="right") for scores, at in parts], axis=0)
