"""What a model says of rows that it has not learned from: those that were held out, or of few rows each in its fold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .predictions import rows_of
from .training_table import TrainingTable

# Probability of the intervals that the report judges.
LEVEL = 0.9

# Rows below which a fifth of them cannot tell: then each is predicted by networks that did not see it.
FEW_ROWS = 150


@dataclass(frozen=True)
class Judged:
    """Predictions of rows whose targets are known.

    Args:
        rows: Their numbers in the table.
        predictive: Their predictive distributions.
        frame: The same as columns, from `rows_of` at `LEVEL`.
        pit: Returns probabilities of targets at or below y by the frame's intervals, (rows, 1), for the predictive's
            own; None for classes.
        cross_validated: Whether they are all rows, each predicted by networks of folds that it was not in.
    """

    rows: NDArray[np.int64]
    predictive: Any
    frame: Any
    pit: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None
    cross_validated: bool


def judge_held_out(model: Any, loaded: TrainingTable, test: NDArray[np.int64]) -> Judged:
    """Predict rows that were held out."""
    inputs, levels = loaded.inputs.iloc[test], getattr(model, "interval_levels_", None)
    predictive, uncertainty = model.predict_with_uncertainty(inputs)
    pit = None if levels is None else levels.transform
    if getattr(model, "conformal", False):
        pit = partial(_conformal_pit, model, inputs, loaded.y[test])
    return Judged(test, predictive, rows_of(model, inputs, predictive, uncertainty, LEVEL), pit, False)


def judge_by_folds(model: Any, loaded: TrainingTable) -> Judged:
    """Take what cross-validation said of all rows, each by networks that had not seen it.

    Noise and effective batch size, two numbers, and the setting were chosen on these rows; how wide intervals of a fold
    are is told by the others.
    """
    from ..predictive import RegressionPredictive
    from ..tabular.fold_levels import FoldLevels

    held_out = model.selection_.out_of_fold
    inputs = loaded.inputs.iloc[held_out.rows]
    levels = FoldLevels.fit(held_out) if isinstance(held_out.predictive, RegressionPredictive) else None
    uncertainty = model.uncertainty_of(held_out.predictive)
    # Whether a row is unlike the others is not asked of rows that the model knows.
    uncertainty = uncertainty.assign(unusual=False, reason="", unseen_columns="")
    frame = rows_of(model, inputs, held_out.predictive, uncertainty, LEVEL, levels)
    pit = None if levels is None else levels.transform
    return Judged(held_out.rows, held_out.predictive, frame, pit, True)


def _conformal_pit(model: Any, inputs: Any, y: NDArray[Any], _: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities by intervals that need no predictive."""
    found: NDArray[np.float64] = model.conformal_cdf(inputs, y)
    return found
