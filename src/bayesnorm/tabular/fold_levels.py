"""Intervals of cross-validated rows; the interval width of each fold is calibrated on the other folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..predictive import RegressionPredictive
from .column_types import Numbers
from .intervals import IntervalLevels
from .search_results import OutOfFold


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
