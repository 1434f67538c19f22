"""Simple models for comparison in the report: a linear model and boosted trees of scikit-learn."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .options import Task

if TYPE_CHECKING:
    from ..report import Baseline

# Rows that the simple models are trained on at most, sampled at random, and part of them that measures the error bar.
MOST_ROWS, MEASURED = 50_000, 0.2


def fit_baselines(
    model: Any, inputs: Any, y: NDArray[Any], task: Task, train: NDArray[np.int64], test: NDArray[np.int64]
) -> tuple[Baseline, ...]:
    """Return predictions of simple models for the report's rows.

    Args:
        model: The fitted estimator, which encodes the columns.
        inputs: The inputs of all rows of the table.
        y: The targets of all rows.
        task: Regression or classification.
        train: Numbers of the training rows.
        test: Numbers of the report's rows. Training rows are predicted in the folds of the model's cross-validation.
    """
    from ..report import Baseline

    features = model.preprocessing_.network_inputs(model.preprocessing_.transform(inputs))
    held_out = model.selection_.out_of_fold
    if np.isin(test, train).any():
        splits = [(test[held_out.fold != fold], held_out.fold == fold) for fold in np.unique(held_out.fold)]
    else:
        splits = [(train, np.ones(len(test), bool))]
    classes = None if task is Task.regression else model.classes_
    baselines = []
    for name, make in _makers(task).items():
        columns = 1 if classes is None else len(classes)
        predictions, stds = np.zeros((len(test), columns)), []
        for rows, which in splits:
            rows = np.random.default_rng(0).permutation(rows)[:MOST_ROWS]
            fitted = _fitted(make(), features[rows], y[rows])
            if classes is None:
                predictions[which, 0] = fitted.predict(features[test[which]])
                measured = np.arange(len(rows)) < max(1, MEASURED * len(rows))
                part = _fitted(make(), features[rows[~measured]], y[rows[~measured]])
                errors = y[rows[measured]] - part.predict(features[rows[measured]])
                stds.append(float(np.sqrt(np.mean(np.square(errors)))))
            else:
                places = np.searchsorted(classes, fitted.classes_)
                predictions[np.ix_(which, places)] = fitted.predict_proba(features[test[which]])
        if classes is None:
            least = 1e-6 * float(np.std(y[train]))
            baselines.append(Baseline(name, predictions[:, 0], max(float(np.mean(stds)), least)))
        else:
            baselines.append(Baseline(name, predictions))
    return tuple(baselines)


def _makers(task: Task) -> dict[str, Any]:
    """Return functions that make the unfitted models, by name."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV

    if task is Task.regression:
        return {
            "a linear model": lambda: RidgeCV(np.logspace(-3, 4, 15)),
            "boosted trees": lambda: HistGradientBoostingRegressor(random_state=0),
        }
    return {
        "a linear model": lambda: LogisticRegression(max_iter=300),
        "boosted trees": lambda: HistGradientBoostingClassifier(random_state=0, early_stopping=False),
    }


def _fitted(model: Any, x: NDArray[np.float64], y: NDArray[Any]) -> Any:
    """Return a fitted model; a constant if all targets are equal."""
    from sklearn.dummy import DummyClassifier
    from sklearn.exceptions import ConvergenceWarning

    if len(np.unique(y)) == 1 and hasattr(model, "predict_proba"):
        model = DummyClassifier()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a baseline need not be perfect
        return model.fit(x, y)
