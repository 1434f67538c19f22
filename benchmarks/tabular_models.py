"""Models of `tabular`: each returns a forecast for test rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bayesnorm import metrics
from benchmarks import tabular_network_models as networks, tabular_tree_models as trees
from benchmarks.tabular_forecasts import LEVEL, Fit, Forecast, Predict, Values, covered, normal
from benchmarks.tabular_runs import LeftOut

MOST_GP_ROWS = 1_700


def ours(**options: Any) -> Fit:
    """Return a function that fits `BayesNormRegressor` with these options."""

    def fit(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
        from bayesnorm.tabular import BayesNormRegressor

        model = BayesNormRegressor(**options, random_state=seed).fit(X, y)

        def predict(X: Values) -> Forecast:
            predictive = model.predict_dist(X)
            bounds = [bound.numpy()[:, 0] for bound in predictive.interval(LEVEL)]
            return Forecast(
                predictive.mean.numpy()[:, 0],
                *model.predict_interval(X, LEVEL),
                lambda y: float(metrics.crps(predictive, y[:, None], form="mixture")),
                lambda y: {
                    "own_coverage": covered(*bounds, y),
                    "crps_gaussian": float(metrics.crps(predictive, y[:, None])),
                },
            )

        chosen = model.selection_.chosen
        layers = "-".join(str(units) for units in chosen.hidden)
        return predict, f"{chosen.encoding}, {layers}, {chosen.epochs} epochs"

    return fit


def gaussian_process(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's Gaussian process; return a function for new rows, and what was chosen."""
    if len(X) > MOST_GP_ROWS:
        raise LeftOut(f"too large ({len(X):,} rows)")
    kernel = ConstantKernel(1.0, (1e-2, 1e3)) * RBF(np.ones(X.shape[1]), (1e-1, 1e3)) + WhiteKernel(0.1, (1e-6, 10))
    process = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=int(len(X) < 1_000), random_state=seed
    )
    model = make_pipeline(StandardScaler(), process)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the length scale of a useless column reaches its bound
        model.fit(X, y)
    return lambda X: normal(*model.predict(X, return_std=True)), str(process.kernel_)


def bayesian_ridge(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
    """Fit scikit-learn's Bayesian ridge; return a function for new rows, and an empty text: nothing is chosen."""
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    return lambda X: normal(*model.predict(X, return_std=True)), ""


MODELS: dict[str, Fit] = {
    "bayesnorm": ours(),
    "bayesnorm, networks only": ours(networks_only=True),
    "bayesnorm, fast": ours(fast=True, networks_only=True),
    "bayesnorm, no samples": ours(method="ensemble", networks_only=True),
    "bayesnorm, one network": ours(members=1, networks_only=True),
    "one network, no samples": ours(members=1, method="ensemble", networks_only=True),
    "boosted quantiles": trees.boosted_quantiles,
    "boosted quantiles, conformal": trees.conformal_quantiles,
    "CatBoost": trees.catboost,
    "NGBoost": trees.ngboost,
    "quantile forest": trees.quantile_forest,
    "RealMLP": networks.realmlp(1),
    "RealMLP, 5 folds": networks.realmlp(5),
    "TabM": networks.tabm,
    "Gaussian process": gaussian_process,
    "Bayesian ridge": bayesian_ridge,
}

NEEDED = {
    "boosted quantiles, conformal": "mapie",
    "CatBoost": "catboost",
    "NGBoost": "ngboost",
    "quantile forest": "quantile_forest",
    "RealMLP": "pytabkit",
    "RealMLP, 5 folds": "pytabkit",
    "TabM": "pytabkit",
}
"""Packages that models need; models of packages that are not installed are not run."""
