"""Measure what drives predictions: shuffle columns of held-out rows, and set a column to one value in all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .options import Task

if TYPE_CHECKING:
    from ..report import Influence

# Predicted rows at most, and rows that columns are shuffled over.
MOST_PREDICTED, MOST_ROWS = 12_000, 400

# Columns with a partial dependence, values of each, and rows that it is averaged over.
MOST_CURVES, MOST_VALUES, CURVE_ROWS = 4, 12, 60

# Columns at most; with more, each could be shuffled over few rows only.
MOST_COLUMNS = 200


def measure_influence(
    model: Any, inputs: Any, y: NDArray[Any], task: Task, target: str, kinds: dict[str, str]
) -> Influence | None:
    """Return the influence of each column on held-out predictions; None for too few rows or too many columns.

    Args:
        model: The fitted estimator.
        inputs: The held-out rows.
        y: Their targets.
        task: Regression or classification.
        target: Name of the target.
        kinds: The kind of each column.
    """
    from ..report import ColumnInfluence, Influence, PartialDependence

    columns = list(inputs.columns)
    if len(columns) > MOST_COLUMNS or len(inputs) < 2:
        return None
    generator = np.random.default_rng(0)
    count = int(min(len(inputs), MOST_ROWS, max(20, MOST_PREDICTED // (len(columns) + 1))))
    rows = np.sort(generator.permutation(len(inputs))[:count])
    inputs, y = inputs.iloc[rows].reset_index(drop=True), y[rows]
    error, uncertainty = _measured(model, inputs, y, task)[:2]
    base, level = float(error.mean()), float(uncertainty.mean())
    influences = []
    for name in columns:
        shuffled = inputs.assign(**{name: inputs[name].to_numpy()[generator.permutation(count)]})
        other_error, other_uncertainty, *_ = _measured(model, shuffled, y, task)
        rise = float(other_error.mean()) / base - 1 if base > 0 else 0.0
        change = float(np.abs(other_uncertainty - uncertainty).mean()) / level if level > 0 else 0.0
        influences.append(ColumnInfluence(name, rise, change))
    leading = sorted(influences, key=lambda influence: -influence.error)[:MOST_CURVES]
    curves = []
    for influence in leading:
        name, some = influence.name, inputs.iloc[:CURVE_ROWS]
        values = _values(inputs[name], kinds[name])
        if len(values) < 2:
            continue
        results = [_measured(model, some.assign(**{name: _filled(inputs[name], value, len(some))}), None, task)
                   for value in values]  # fmt: skip
        shown = [value if isinstance(value, str) else _as_number(value) for value in values]
        means, parts, totals = zip(
            *((float(mean.mean()), float(part.mean()), float(total.mean())) for _, part, mean, total in results),
            strict=True,
        )
        curves.append(PartialDependence(name, kinds[name], tuple(shown), means, parts, totals))
    classes = task is Task.classification
    return Influence(
        score="negative log likelihood" if classes else "CRPS",
        rows=count,
        output=f"probability of “{model.classes_[_shown_class(model)]}”" if classes else target,
        uncertainty="mutual information" if classes else "epistemic standard deviation",
        columns=tuple(influences),
        dependence=tuple(curves),
    )


def _measured(
    model: Any, inputs: Any, y: NDArray[Any] | None, task: Task
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return of each row the error, the epistemic uncertainty, the mean and the total uncertainty."""
    from ..metrics import crps_points

    predictive = model.predict_dist(inputs)
    none = np.zeros(len(inputs))
    if task is Task.classification:
        probs = model.proba_of(predictive)
        errors = none
        if y is not None:
            errors = -np.log(np.clip(probs[np.arange(len(y)), np.searchsorted(model.classes_, y)], 1e-12, None))
        parts = (predictive.mutual_information.numpy(), probs[:, _shown_class(model)], predictive.entropy.numpy())
        return errors, *parts
    errors = none if y is None else crps_points(predictive, y.reshape(-1, 1)).numpy()[:, 0]
    return (
        errors,
        predictive.epistemic[:, 0].sqrt().numpy(),
        predictive.mean[:, 0].numpy(),
        predictive.std[:, 0].numpy(),
    )


def _shown_class(model: Any) -> int:
    """Return the number of the class whose probability is shown: the last of two, or the first."""
    return 1 if len(model.classes_) == 2 else 0


def _values(column: Any, kind: str) -> list[Any]:
    """Return some values of a column: evenly spaced quantiles, or the most frequent categories."""
    present = column.dropna()
    if kind == "category":
        return present.value_counts().index[:MOST_VALUES].tolist()
    different = np.unique(present.to_numpy())
    if len(different) <= MOST_VALUES:
        return list(different)
    places = np.round(np.linspace(0.02, 0.98, MOST_VALUES) * (len(present) - 1)).astype(int)
    return list(np.unique(np.sort(present.to_numpy())[places]))


def _filled(column: Any, value: Any, rows: int) -> NDArray[Any]:
    """Return an array of the column's type that repeats a value."""
    return np.full(rows, value, dtype=column.to_numpy().dtype)


def _as_number(value: Any) -> float:
    """Return a number, or a date as days since 1970."""
    from ..tabular import dates

    return float(dates.days(np.array([value]))[0])
