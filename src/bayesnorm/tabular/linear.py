"""Linear members: ridge and logistic regression on the preprocessed features, one model for each fold.

The penalty of ridge regression has the lowest error of leave-one-out cross-validation on the training rows of a fold,
in closed form: with the hat matrix H, the error of row i without row i is e_i / (1 - H_ii). The penalty of logistic
regression has the lowest NLL on the held-out rows of all folds.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from .column_types import Numbers
from .tree_fitting import FoldRows, Rows

# Penalties of ridge regression relative to the number of rows, and inverse penalties of logistic regression.
PENALTIES = np.geomspace(1e-9, 10.0, 21)
INVERSE_PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0)

# Largest number of steps of logistic regression.
STEPS = 200


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A linear function of features.

    Args:
        weight: (outputs, features).
        bias: (outputs,).
    """

    weight: Numbers
    bias: Numbers

    @classmethod
    def ridge(cls, x: Numbers, y: Numbers, weights: Numbers | None) -> Self:
        """Return ridge regression of y, (rows, outputs), with the penalty of the lowest leave-one-out error."""
        share = np.full(len(x), 1.0) if weights is None else weights / weights.mean()
        x_mean, y_mean = np.average(x, 0, share), np.average(y, 0, share)
        root = np.sqrt(share)[:, None]
        left, size, right = np.linalg.svd(root * (x - x_mean), full_matrices=False)
        inside = left.T @ (root * (y - y_mean))
        best, results = np.inf, (np.zeros((y.shape[1], x.shape[1])), y_mean)
        for penalty in PENALTIES * len(x):
            kept_share = size**2 / (size**2 + penalty)
            leverage = np.minimum((left**2 * kept_share).sum(1) + share / share.sum(), 1 - 1e-6)
            errors = (root * (y - y_mean) - left @ (kept_share[:, None] * inside)) / (1 - leverage[:, None])
            error = float((errors**2).mean())
            if error < best:
                coefficients = right.T @ ((size / (size**2 + penalty))[:, None] * inside)
                best, results = error, (coefficients.T, y_mean - x_mean @ coefficients)
        return cls(*results)

    def predict(self, x: Numbers) -> Numbers:
        """Return the outputs of rows of features, (rows, outputs)."""
        return np.asarray(x @ self.weight.T + self.bias)


def fit_ridge(rows: FoldRows, y: Numbers) -> list[LinearModel]:
    """Return ridge regression of the targets, (rows, targets), for each fold."""
    models = []
    for fold, train in enumerate(rows.train_rows):
        model = LinearModel.ridge(rows.features(fold, train), y[train], rows.weights_of(train))
        models.append(LinearModel(model.weight * rows.may_use(fold), model.bias))
    return models


def fit_logistic(rows: FoldRows, y: Rows, classes: int) -> list[LinearModel]:
    """Return logistic regression for each fold, from class numbers, (rows,)."""
    results = []
    for inverse in INVERSE_PENALTIES:
        models = [_logistic(rows, fold, y, classes, inverse) for fold in range(len(rows.train_rows))]
        parts = []
        for fold, (model, test) in enumerate(zip(models, rows.test_rows, strict=True)):
            log_probs = log_softmax(model.predict(rows.features(fold, test)), -1)
            parts.append(-np.take_along_axis(log_probs, y[test][:, None], -1)[:, 0])
        results.append((np.average(np.concatenate(parts), weights=rows.weights_of(rows.held_out)), models))
    return min(results, key=lambda result: result[0])[1]


def _logistic(rows: FoldRows, fold: int, y: Rows, classes: int, inverse: float) -> LinearModel:
    train = rows.train_rows[fold]
    present = np.unique(y[train])
    weight, bias = np.zeros((classes, rows.x.shape[1])), np.full(classes, np.log(0.5 / len(train)))
    bias[present] = 0.0
    if len(present) > 1:
        model = LogisticRegression(C=inverse, max_iter=STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # more steps would change the predictions hardly
            model.fit(rows.features(fold, train), y[train], rows.weights_of(train))
        places: NDArray[np.int64] = present[1:] if len(present) == 2 else present
        weight[places], bias[places] = model.coef_ * rows.may_use(fold), model.intercept_
    return LinearModel(weight, bias)
