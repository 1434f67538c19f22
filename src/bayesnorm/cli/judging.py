"""Predict rows that a model was not trained on: held-out rows, or all rows of a small table by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .predictions import rows_of
from .training_table import TrainingTable

# Level of the intervals that the report tests.
LEVEL = 0.9

# Below this number of rows a held-out set is too small, so the report uses cross-validation.
FEW_ROWS = 150


@dataclass(frozen=True)
class Judged:
    """Predictions of rows whose targets are known.

    Args:
        rows: Their numbers in the table.
        predictive: Their predictive distributions.
        frame: The same predictions as columns, from `rows_of` at `LEVEL`.
        pit: Maps the predictive's CDF at the targets, (rows, 1), to the CDF that the frame's intervals imply; None for
            classes.
        cross_validated: Whether all rows were predicted by cross-validation.
    """

    rows: NDArray[np.int64]
    predictive: Any
    frame: Any
    pit: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None
    cross_validated: bool


def judge_held_out(model: Any, loaded: TrainingTable, test: NDArray[np.int64]) -> Judged:
    """Predict the held-out rows."""
    inputs, levels = loaded.inputs.iloc[test], getattr(model, "interval_levels_", None)
    predictive, uncertainty = model.predict_with_uncertainty(inputs)
    pit = None if levels is None else levels.transform
    if getattr(model, "conformal", False):
        pit = partial(_conformal_pit, model, inputs, loaded.y[test])
    return Judged(test, predictive, rows_of(model, inputs, predictive, uncertainty, LEVEL), pit, False)


def judge_by_folds(model: Any, loaded: TrainingTable) -> Judged:
    """Return the predictions of cross-validation, in which no network predicts a row that it was trained on.

    The noise, the effective batch size and the setting were chosen on these rows. The width of a fold's intervals
    comes from the other folds.
    """
    from ..predictive import RegressionPredictive
    from ..tabular.fold_levels import FoldLevels

    held_out = model.selection_.out_of_fold
    inputs = loaded.inputs.iloc[held_out.rows]
    levels = FoldLevels.fit(held_out) if isinstance(held_out.predictive, RegressionPredictive) else None
    uncertainty = model.uncertainty_of(held_out.predictive)
    # Training rows are never unusual.
    uncertainty = uncertainty.assign(unusual=False, reason="", unseen_columns="")
    frame = rows_of(model, inputs, held_out.predictive, uncertainty, LEVEL, levels)
    pit = None if levels is None else levels.transform
    return Judged(held_out.rows, held_out.predictive, frame, pit, True)


def _conformal_pit(model: Any, inputs: Any, y: NDArray[Any], _: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the CDF that conformal intervals imply; they do not need the predictive's CDF."""
    found: NDArray[np.float64] = model.conformal_cdf(inputs, y)
    return found
