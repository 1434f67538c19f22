"""Predictions for the rows of a table, as columns of a data frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def prediction_frame(
    model: Any, inputs: Any, predictive: Any, uncertainty: Any, level: float, levels: Any = None
) -> pd.DataFrame:
    """Return a data frame with the prediction of each row.

    Regression: `mean`, `std`, `lower`, `upper`, `epistemic_std`, `aleatoric_std`. Classification: `predicted`, a column
    `p(...)` for each class, `entropy`, `mutual_information`. Both: `row` (from the index), `unusual` (whether
    the row differs clearly from the training rows) and `reason`.

    Args:
        model: A fitted estimator of `bayesnorm.tabular`.
        inputs: A data frame of the rows, whose index holds their numbers.
        predictive, uncertainty: The result of `model.predict_with_uncertainty` for these rows.
        level: Probability of the interval from `lower` to `upper`.
        levels: The interval levels to use; None for those of the model. Ends of conformal intervals can be infinite.
    """
    columns: dict[str, Any] = {"row": np.asarray(inputs.index)}
    if hasattr(model, "classes_"):
        probs = model.proba_of(predictive)
        columns["predicted"] = model.classes_[probs.argmax(1)]
        for number, label in enumerate(model.classes_):
            columns[f"p({label})"] = probs[:, number]
    else:
        columns |= {"mean": predictive.mean[:, 0].numpy(), "std": predictive.std[:, 0].numpy()}
        if model.conformal and levels is None:
            columns["lower"], columns["upper"] = model.predict_interval(inputs, level)
        else:
            lower, upper = (model.interval_of if levels is None else levels.interval)(predictive, level)
            columns |= {"lower": lower[:, 0].numpy(), "upper": upper[:, 0].numpy()}
    for name in uncertainty.columns.drop("unseen_columns"):
        columns[name] = uncertainty[name].to_numpy()
    return pd.DataFrame(columns)
