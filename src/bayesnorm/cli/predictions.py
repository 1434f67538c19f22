"""Predictions for rows of a table, as columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .tables import pandas


def predict_rows(model: Any, inputs: Any, level: float) -> Any:
    """Return predictions for a table, as `rows_of` has them."""
    predictive, doubt = model.predict_with_doubt(inputs)
    return rows_of(model, inputs, predictive, doubt, level)


def rows_of(model: Any, inputs: Any, predictive: Any, doubt: Any, level: float, levels: Any = None) -> Any:
    """Return a data frame with the prediction of each row.

    Regression: `mean`, `std`, `lower`, `upper`, `epistemic_std`, `aleatoric_std`; classification: `predicted`, a column
    `p(...)` for each class, `entropy`, `mutual_information`. Both: `row`, its number in the file, `unlike`, whether it
    is unlike the rows of training, and `why`.

    Args:
        model: A fitted estimator of `bayesnorm.tabular`.
        inputs: Data frame of numbers and text, with its rows numbered as in their file.
        predictive, doubt: What `model.predict_with_doubt` said of them.
        level: Probability of the interval from `lower` to `upper`.
        levels: What makes intervals; None for the model's own way.
    """
    pd = pandas()
    found: dict[str, Any] = {"row": np.asarray(inputs.index)}
    if hasattr(model, "classes_"):
        probs = model.proba_of(predictive)
        found["predicted"] = model.classes_[probs.argmax(1)]
        for number, label in enumerate(model.classes_):
            found[f"p({label})"] = probs[:, number]
    else:
        lower, upper = (model.interval_of if levels is None else levels.interval)(predictive, level)
        for name, values in (("mean", predictive.mean), ("std", predictive.std), ("lower", lower), ("upper", upper)):
            found[name] = values[:, 0].numpy()
    for name in doubt.columns.drop("unseen"):
        found[name] = doubt[name].to_numpy()
    return pd.DataFrame(found)


def side_by_side(targets: Mapping[str, Any]) -> Any:
    """Return predictions of several targets in one data frame, with one verdict on each row.

    Args:
        targets: What `rows_of` said of the same rows, by target.
    """
    frames = list(targets.values())
    if len(frames) == 1:
        return frames[0]
    found = {"row": frames[0]["row"]}
    for target, frame in targets.items():
        found |= {f"{target} {name}": frame[name] for name in frame.columns.drop(["row", "unlike", "why"])}
    # Training rows are the same but for those without one of the targets.
    why = np.select([frame["why"].to_numpy(object) != "" for frame in frames], [frame["why"] for frame in frames], "")
    return pandas().DataFrame({**found, "unlike": why != "", "why": why})
