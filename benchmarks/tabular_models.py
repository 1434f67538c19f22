"""Models of `tabular`: what each predicts of test rows, fitted as its user would do it in an afternoon."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayesnorm import metrics
from bayesnorm.predictive import GaussianPredictive
from bayesnorm.tabular import BayesNormRegressor

Values = NDArray[np.float64]
LEVEL = 0.9
MOST_GP_ROWS = 1_700
QUANTILES = np.arange(1, 20) / 20
TUNED = (0.1, 0.5, 0.9)
"""Quantiles that the boosters are tuned with."""


class LeftOut(Exception):
    """Why a model is not fitted to a set."""


@dataclass
class Forecast:
    """What a model says of test rows: a mean, an interval, and how to score the distribution."""

    mean: Values
    lower: Values
    upper: Values
    crps: Callable[[Values], float]
    extra: Callable[[Values], dict[str, float]] = lambda y: {}


Predict = Callable[[Values], Forecast]


def covered(lower: Values, upper: Values, y: Values) -> float:
    """Return the share of targets inside their intervals."""
    return float(np.mean((lower <= y) & (y <= upper)))


def quantile_crps(quantiles: Values, y: Values) -> float:
    """Return CRPS = 2 integral of the pinball loss over all levels, from (rows, 19) quantiles.

    The trapezoid rule, the loss being 0 at levels 0 and 1. For a normal forecast it comes out .4 % low where the spread
    is right and 1 % low where the errors are twice as large (`crps_from_quantiles` in the results has it on real rows).
    """
    error = y[:, None] - quantiles
    pinball = np.maximum(QUANTILES * error, (QUANTILES - 1) * error)
    return float(2 * 0.05 * pinball.sum(axis=1).mean())


def normal(mean: Values, std: Values) -> Forecast:
    """Return a forecast of normal distributions."""
    f, variance = torch.from_numpy(mean), torch.from_numpy(std).square()
    predictive = GaussianPredictive(f, torch.zeros_like(f), variance)
    lower, upper = (bound.numpy() for bound in predictive.interval(LEVEL))
    quantiles = mean[:, None] + std[:, None] * torch.special.ndtri(torch.from_numpy(QUANTILES)).numpy()
    extra = lambda y: {"crps_from_quantiles": quantile_crps(quantiles, y)}  # noqa: E731
    return Forecast(mean, lower, upper, lambda y: float(metrics.crps(predictive, y)), extra)


def ours(method: str) -> Callable[[Values, Values, int], tuple[Predict, str]]:
    """Return how to fit `BayesNormRegressor` as it comes."""

    def fit(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
        model = BayesNormRegressor(method=method, random_state=seed).fit(X, y)

        def predict(X: Values) -> Forecast:
            predictive = model.predict_dist(X)
            own = [bound.numpy()[:, 0] for bound in predictive.interval(LEVEL)]
            return Forecast(
                predictive.mean.numpy()[:, 0],
                *model.predict_interval(X, LEVEL),
                lambda y: float(metrics.crps(predictive, y[:, None])),
                lambda y: {"own_coverage": covered(*own, y)},
            )

        chosen = model.selection_.chosen
        return predict, f"batches of {chosen.batch_size}, weight decay {chosen.weight_decay:g}, {chosen.epochs} epochs"

    return fit


def gaussian_process(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's Gaussian process; return how to predict, and what was chosen."""
    if len(X) > MOST_GP_ROWS:
        raise LeftOut(f"too large ({len(X):,} rows)")
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * RBF(np.ones(X.shape[1]), (1e-1, 1e3)) + WhiteKernel(0.1, (1e-6, 10))
    process = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=int(len(X) < 1_000), random_state=seed
    )
    model = make_pipeline(StandardScaler(), process)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a useless column's length scale goes to its bound
        model.fit(X, y)
    return lambda X: normal(*model.predict(X, return_std=True)), str(process.kernel_)


def boosted_quantiles(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's gradient boosters for quantiles; return how to predict, and what was chosen."""
    large = len(X) > 5_000
    rate, patience = (0.1, 30) if large else (0.05, 50)
    sizes = [(31, 20), (127, 20)] if large else [(8, 5), (31, 5), (31, 20)]
    folds = list(KFold(3 if large else 5, shuffle=True, random_state=seed).split(X))

    def booster(size: tuple[int, int], quantile: float | None, **settings: Any) -> HistGradientBoostingRegressor:
        loss = {"loss": "quantile", "quantile": quantile} if quantile else {"loss": "squared_error"}
        return HistGradientBoostingRegressor(
            max_leaf_nodes=size[0], min_samples_leaf=size[1], learning_rate=rate, **loss, **settings, random_state=seed
        )

    def held_out(size: tuple[int, int], quantile: float | None) -> tuple[float, int]:
        """Return the mean loss of held-out folds, and the number of trees."""
        losses, trees = [], []
        for rows, others in folds:
            model = booster(size, quantile, max_iter=1000, early_stopping=True, n_iter_no_change=patience)
            model.fit(X[rows], y[rows], X_val=X[others], y_val=y[others])
            losses.append(-model.validation_score_.max())
            trees.append(max(1, int(model.validation_score_.argmax())))
        return statistics.mean(losses), round(statistics.mean(trees))

    found = {size: [held_out(size, quantile) for quantile in TUNED] for size in sizes}
    size = min(sizes, key=lambda size: sum(loss for loss, _ in found[size]))
    trees = np.interp(QUANTILES, TUNED, [count for _, count in found[size]]).round().astype(int)
    wanted = [(None, held_out(size, None)[1]), *zip(QUANTILES.tolist(), trees.tolist(), strict=True)]
    mean, *models = [booster(size, q, max_iter=count, early_stopping=False).fit(X, y) for q, count in wanted]

    def predict(X: Values) -> Forecast:
        quantiles = np.sort(np.stack([model.predict(X) for model in models], axis=1), axis=1)
        return Forecast(mean.predict(X), quantiles[:, 0], quantiles[:, -1], lambda y: quantile_crps(quantiles, y))

    return predict, f"{size[0]} leaves of {size[1]} rows or more, {trees.min()} to {trees.max()} trees"


def bayesian_ridge(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's Bayesian line; return how to predict, and nothing, as nothing is chosen."""
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    return lambda X: normal(*model.predict(X, return_std=True)), ""


def ngboost(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit NGBoost; return how to predict, and what was chosen."""
    from ngboost import NGBRegressor

    large = len(X) > 8_000
    most = {"n_estimators": 500, "learning_rate": 0.1, "minibatch_frac": 0.5} if large else {"n_estimators": 2000}
    fixed = {"verbose": False, "random_state": seed}
    order = np.random.default_rng(seed).permutation(len(X))
    held_out, rows = order[: len(X) // 5], order[len(X) // 5 :]
    trial = NGBRegressor(**most, **fixed, early_stopping_rounds=50)
    trial.fit(X[rows], y[rows], X_val=X[held_out], Y_val=y[held_out])
    trees = max(1, trial.best_val_loss_itr or 0)
    model = NGBRegressor(**(most | {"n_estimators": trees}), **fixed).fit(X, y)

    def predict(X: Values) -> Forecast:
        found = model.pred_dist(X)
        return normal(np.asarray(found.params["loc"]), np.asarray(found.params["scale"]))

    return predict, f"{trees} trees"


MODELS: dict[str, Callable[[Values, Values, int], tuple[Predict, str]]] = {
    "bayesnorm": ours("mcbn"),
    "bayesnorm, ensemble": ours("ensemble"),
    "Gaussian process": gaussian_process,
    "boosted quantiles": boosted_quantiles,
    "NGBoost": ngboost,
    "Bayesian ridge": bayesian_ridge,
}
