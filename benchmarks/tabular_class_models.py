"""Models of `tabular_classes`: each returns class probabilities of test rows."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

Classes = NDArray[np.int64]
Predict = Callable[[pd.DataFrame], NDArray[np.float64]]
Fit = Callable[[pd.DataFrame, Classes, int], tuple[Predict, str]]
"""Takes rows, classes (0, 1, ...) and a seed; returns a function for new rows, and what was chosen as text."""


def ours(X: pd.DataFrame, y: Classes, seed: int, **options: Any) -> tuple[Predict, str]:
    """Fit `BayesNormClassifier`."""
    from bayesnorm.tabular import BayesNormClassifier

    return BayesNormClassifier(**options, random_state=seed).fit(X, y).predict_proba, ""


def _boosters(X: pd.DataFrame, y: Classes, seed: int) -> tuple[HistGradientBoostingClassifier, str]:
    """Return scikit-learn's booster, not yet fitted, and the size and number of its trees from cross-validation."""
    large = len(X) > 5_000
    folds = list(StratifiedKFold(3 if large else 5, shuffle=True, random_state=seed).split(X, y))
    rate = 0.1 if large else 0.05

    def booster(size: tuple[int, int], **settings: Any) -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(
            max_leaf_nodes=size[0], min_samples_leaf=size[1], learning_rate=rate, random_state=seed, **settings
        )

    def held_out(size: tuple[int, int]) -> tuple[float, int]:
        """Return the mean log loss on held-out folds, and the number of trees."""
        losses, trees = [], []
        for rows, others in folds:
            model = booster(size, max_iter=1000, early_stopping=True, n_iter_no_change=30)
            model.fit(X.iloc[rows], y[rows], X_val=X.iloc[others], y_val=y[others])
            losses.append(-model.validation_score_.max())
            trees.append(max(1, int(model.validation_score_.argmax())))
        return statistics.mean(losses), round(statistics.mean(trees))

    results = {size: held_out(size) for size in [(4, 20), (8, 5), (31, 20)]}
    size = min(results, key=lambda size: results[size][0])
    trees = results[size][1]
    return booster(size, max_iter=trees, early_stopping=False), f"{size[0]} leaves, {trees} trees"


def boosted(X: pd.DataFrame, y: Classes, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's gradient boosting."""
    model, chosen = _boosters(X, y, seed)
    return model.fit(X, y).predict_proba, chosen


def boosted_calibrated(X: pd.DataFrame, y: Classes, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's gradient boosting on five folds, each with a temperature from its held-out rows."""
    model, chosen = _boosters(X, y, seed)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return CalibratedClassifierCV(model, method="temperature", cv=folds).fit(X, y).predict_proba, chosen


def catboost(X: pd.DataFrame, y: Classes, seed: int) -> tuple[Predict, str]:
    """Fit CatBoost; a held-out fifth chooses depth and number of trees, then all rows are used."""
    from catboost import CatBoostClassifier

    categories = list(X.select_dtypes("category"))
    fixed = {"loss_function": "Logloss" if y.max() == 1 else "MultiClass", "cat_features": categories}
    fixed |= {"random_seed": seed, "thread_count": 1, "verbose": False, "allow_writing_files": False}
    rows, others = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y)
    results = {}
    for depth in (4, 6):
        trial = CatBoostClassifier(depth=depth, early_stopping_rounds=50, **fixed)
        trial.fit(X.iloc[rows], y[rows], eval_set=(X.iloc[others], y[others]))
        rate = trial.get_all_params()["learning_rate"]
        results[trial.best_score_["validation"][fixed["loss_function"]]] = depth, trial.tree_count_, rate
    depth, trees, rate = results[min(results)]
    # Its default learning rate depends on the number of trees, so the one of the search is kept.
    model = CatBoostClassifier(depth=depth, iterations=trees, learning_rate=rate, **fixed).fit(X, y)
    return model.predict_proba, f"depth {depth}, {trees} trees"


def logistic(X: pd.DataFrame, y: Classes, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's logistic regression; cross-validation chooses the penalty."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include="category")),
        remainder=make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler()),
    )
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    line = LogisticRegressionCV(
        Cs=8, cv=folds, scoring="neg_log_loss", max_iter=2000, l1_ratios=(0.0,), use_legacy_attributes=False
    )
    model = make_pipeline(columns, line).fit(X, y)
    return model.predict_proba, f"C = {float(line.C_):.3g}"


MODELS: dict[str, Fit] = {
    "bayesnorm": ours,
    "bayesnorm, networks only": functools.partial(ours, networks_only=True),
    "boosting": boosted,
    "boosting, temperature": boosted_calibrated,
    "CatBoost": catboost,
    "logistic regression": logistic,
}

NEEDED = {"CatBoost": "catboost"}
"""Packages that models need; models of packages that are not installed are not run."""
