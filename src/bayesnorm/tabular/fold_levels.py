"""Intervals of held-out rows that did not help to choose how wide they are: each fold's come from the other folds."""

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
    """What `IntervalLevels` are, for the rows of a cross-validation.

    Args:
        fold: Which fold each row was held out in.
        levels: For each fold what the rows of the others needed.
    """

    fold: NDArray[np.int64]
    levels: tuple[IntervalLevels, ...]

    @classmethod
    def fit(cls, held_out: OutOfFold) -> Self:
        """Learn from predictions of a cross-validation."""
        predictive, weight = held_out.predictive, held_out.weight
        assert isinstance(predictive, RegressionPredictive)
        found = []
        for k in range(int(held_out.fold.max()) + 1):
            others = held_out.fold != k
            weights = None if weight is None else weight[others]
            found.append(IntervalLevels.fit(_rows(predictive, others), held_out.target[others], weights))
        return cls(held_out.fold, tuple(found))

    def interval(self, predictive: RegressionPredictive, level: float) -> tuple[Tensor, Tensor]:
        """Return (lower, upper) of the predictions of these rows at a level."""
        lower, upper = predictive.mean.clone(), predictive.mean.clone()
        for k, levels in enumerate(self.levels):
            own = self.fold == k
            if own.any():
                rows = torch.from_numpy(own)
                lower[rows], upper[rows] = levels.interval(_rows(predictive, own), level)
        return lower, upper

    def transform(self, own: Numbers) -> Numbers:
        """Return probabilities of targets at or below y by these intervals, from the predictive's own."""
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
