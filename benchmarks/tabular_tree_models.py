"""Boosted trees and forests for `tabular`."""

from __future__ import annotations

import statistics
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from benchmarks.tabular_forecasts import (
    LEVEL,
    QUANTILES,
    Forecast,
    Predict,
    Values,
    by_quantiles,
    normal,
    quantile_crps,
)

TUNED = (0.1, 0.5, 0.9)
"""Quantiles for which the number of trees is chosen."""

Rows = NDArray[np.int64]


def held_out_fifth(n_rows: int, seed: int) -> tuple[Rows, Rows]:
    """Return the indices of four fifths of the rows, and of the others."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[n_rows // 5 :], order[: n_rows // 5]


class BoostedQuantiles:
    """scikit-learn's gradient boosters: one for each of 19 quantiles, and one for the mean.

    Args:
        X: Rows.
        y: Targets.
        seed: Seed of the folds.
        folds: Number of folds of the cross-validation that are held out in turn; None for all.
    """

    def __init__(self, X: Values, y: Values, seed: int, folds: int | None = None) -> None:
        self.seed, self.large = seed, len(X) > 5_000
        sizes = [(31, 20), (127, 20)] if self.large else [(8, 5), (31, 5), (31, 20)]
        parts = list(KFold(3 if self.large else 5, shuffle=True, random_state=seed).split(X))[:folds]

        def held_out(size: tuple[int, int], quantile: float | None) -> tuple[float, int]:
            """Return the mean loss on held-out folds, and the number of trees."""
            losses, trees = [], []
            for rows, others in parts:
                patience = 30 if self.large else 50
                model = self._booster(size, quantile, max_iter=1000, early_stopping=True, n_iter_no_change=patience)
                model.fit(X[rows], y[rows], X_val=X[others], y_val=y[others])
                losses.append(-model.validation_score_.max())
                trees.append(max(1, int(model.validation_score_.argmax())))
            return statistics.mean(losses), round(statistics.mean(trees))

        results = {size: [held_out(size, quantile) for quantile in TUNED] for size in sizes}
        size = min(sizes, key=lambda size: sum(loss for loss, _ in results[size]))
        trees = np.interp(QUANTILES, TUNED, [count for _, count in results[size]]).round().astype(int)
        wanted = [(None, held_out(size, None)[1]), *zip(QUANTILES.tolist(), trees.tolist(), strict=True)]
        self.mean, *self.quantiles = [
            self._booster(size, q, max_iter=count, early_stopping=False).fit(X, y) for q, count in wanted
        ]
        self.chosen = f"{size[0]} leaves of {size[1]} rows or more, {trees.min()} to {trees.max()} trees"

    def predict(self, X: Values) -> Forecast:
        """Return the forecast of new rows."""
        return by_quantiles(np.stack([model.predict(X) for model in self.quantiles], axis=1), self.mean.predict(X))

    def _booster(self, size: tuple[int, int], quantile: float | None, **settings: Any) -> HistGradientBoostingRegressor:
        loss = {"loss": "quantile", "quantile": quantile} if quantile else {"loss": "squared_error"}
        return HistGradientBoostingRegressor(
            max_leaf_nodes=size[0],
            min_samples_leaf=size[1],
            learning_rate=0.1 if self.large else 0.05,
            **loss,
            **settings,
            random_state=self.seed,
        )


def boosted_quantiles(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit the boosters; return a function for new rows, and what was chosen."""
    model = BoostedQuantiles(X, y, seed)
    return model.predict, model.chosen


def conformal_quantiles(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit the boosters to four fifths of the rows; MAPIE adjusts their intervals on the last fifth."""
    from mapie.regression import ConformalizedQuantileRegressor

    rows, others = held_out_fifth(len(X), seed)
    model = BoostedQuantiles(X[rows], y[rows], seed, folds=1)
    ends = [model.quantiles[0], model.quantiles[-1], model.quantiles[len(QUANTILES) // 2]]
    conformal = ConformalizedQuantileRegressor(ends, confidence_level=LEVEL, prefit=True)
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "WARNING: .*"
        )  # it warns about every prefit model and about crossing quantiles
        conformal.conformalize(X[others], y[others])

    def predict(X: Values) -> Forecast:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "WARNING: .*")
            _, interval = conformal.predict_interval(X)
        return replace(model.predict(X), lower=interval[:, 0, 0], upper=interval[:, 1, 0])

    return predict, f"{model.chosen}; intervals by {len(others)} other rows"


def ngboost(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit NGBoost; return a function for new rows, and what was chosen."""
    from ngboost import NGBRegressor

    large = len(X) > 8_000
    most = {"n_estimators": 500, "learning_rate": 0.1, "minibatch_frac": 0.5} if large else {"n_estimators": 2000}
    fixed = {"verbose": False, "random_state": seed}
    rows, others = held_out_fifth(len(X), seed)
    trial = NGBRegressor(**most, **fixed, early_stopping_rounds=50)
    trial.fit(X[rows], y[rows], X_val=X[others], Y_val=y[others])
    trees = max(1, trial.best_val_loss_itr or 0)
    model = NGBRegressor(**(most | {"n_estimators": trees}), **fixed).fit(X, y)

    def predict(X: Values) -> Forecast:
        result = model.pred_dist(X)
        return normal(np.asarray(result.params["loc"]), np.asarray(result.params["scale"]))

    return predict, f"{trees} trees"


def catboost(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit CatBoost's mean and variance; return a function for new rows, and what was chosen.

    The variance between its virtual ensembles (knowledge uncertainty) is added to the predicted variance.
    """
    from catboost import CatBoostRegressor

    fixed = {"loss_function": "RMSEWithUncertainty", "random_seed": seed, "thread_count": 1}
    quiet = {"verbose": False, "allow_writing_files": False}
    rows, others = held_out_fifth(len(X), seed)
    results = {}
    for depth in (4, 6, 8):
        trial = CatBoostRegressor(depth=depth, iterations=3000, early_stopping_rounds=100, **fixed, **quiet)
        trial.fit(X[rows], y[rows], eval_set=(X[others], y[others]))
        results[trial.best_score_["validation"]["RMSEWithUncertainty"]] = depth, trial.tree_count_
    depth, trees = results[min(results)]
    model = CatBoostRegressor(depth=depth, iterations=trees, **fixed, **quiet).fit(X, y)
    ensembles = min(10, trees // 20)

    def predict(X: Values) -> Forecast:
        mean, variance = np.asarray(model.predict(X)).T
        if ensembles > 1:
            options = {"prediction_type": "TotalUncertainty", "virtual_ensembles_count": ensembles, "thread_count": 1}
            variance = variance + np.asarray(model.virtual_ensembles_predict(X, **options))[:, 1]
        return normal(np.ascontiguousarray(mean), np.sqrt(variance))

    return predict, f"depth {depth}, {trees} trees, {ensembles} virtual ensembles"


def quantile_forest(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit a quantile regression forest; return a function for new rows, and what out-of-bag rows chose."""
    from quantile_forest import RandomForestQuantileRegressor

    levels, result = QUANTILES.tolist(), {}
    for leaf in (1, 5, 15):
        forest = RandomForestQuantileRegressor(300, min_samples_leaf=leaf, max_samples_leaf=None, random_state=seed)
        forest.fit(X, y)
        unseen = np.asarray(forest.predict(X, quantiles=levels, oob_score=True))
        result[quantile_crps(unseen, y)] = leaf, forest
    leaf, model = result[min(result)]

    def predict(X: Values) -> Forecast:
        return by_quantiles(model.predict(X, quantiles=levels), model.predict(X, quantiles="mean"))

    return predict, f"300 trees, leaves of {leaf} rows or more"
