"""Tables of numbers: bayesnorm's regressor beside what people use now, on the eight UCI sets.

    python benchmarks/tabular.py [--sets yacht boston] [--splits 3] [--out results/tabular.json]

Every model is fitted with what its user would do in an afternoon, on the training rows of the MCBN paper's splits only:
- bayesnorm: `BayesNormRegressor()` as it comes, and with `method="ensemble"`.
- Gaussian process (scikit-learn): one length scale per column, and noise; standardised; a second start below 1,000
  rows; none above 1,700 rows.
- boosted quantiles (scikit-learn): 19 histogram gradient boosters with quantile loss, and one with squared error for
  the mean. Cross-validation chooses the size of trees and leaves, and early stopping on the held-out folds the number
  of trees for quantiles .1, .5 and .9 (others: interpolated); then all rows are used. Crossing quantiles are sorted.
- Bayesian ridge (scikit-learn): a line with Gaussian noise, standardised.
- NGBoost: a normal distribution by boosting; the number of trees by early stopping on a fifth of the rows, then all
  rows are used. It wants an older pandas, so the whole has an environment of its own (`tabular_requirements.txt`);
  without NGBoost its rows are left out, and a run that has it adds them.

Scores on the test rows, in the target's units: RMSE of the mean; CRPS, in closed form of the normal distribution, or
from quantiles by the trapezoid rule; coverage and mean width of 90 % intervals. Only bayesnorm's intervals were widened
by held-out rows (`own` in the table: coverage without that). Fits run one at a time, in one thread; a second run goes
on with what is missing.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import time
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
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
from threadpoolctl import threadpool_limits

import bayesnorm as bn
from bayesnorm import metrics
from bayesnorm.data import load_uci, paper_split
from bayesnorm.files import write_bytes
from bayesnorm.predictive import GaussianPredictive
from bayesnorm.tabular import BayesNormRegressor
from experiments.machine import machine

Values = NDArray[np.float64]
LEVEL = 0.9
SETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "protein")
"""From the fewest rows to the most."""

SPLITS = {"power": 2, "protein": 1}
"""Of a run that is not told how many; 3 elsewhere."""

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
    return float(np.mean((lower <= y) & (y <= upper)))


def quantile_crps(quantiles: Values, y: Values) -> float:
    """CRPS = 2 integral of the pinball loss over all levels, from (rows, 19) quantiles.

    The trapezoid rule, the loss being 0 at levels 0 and 1. For a normal forecast it comes out .4 % low where the spread
    is right and 1 % low where the errors are twice as large (`crps_from_quantiles` in the results has it on real rows).
    """
    error = y[:, None] - quantiles
    pinball = np.maximum(QUANTILES * error, (QUANTILES - 1) * error)
    return float(2 * 0.05 * pinball.sum(axis=1).mean())


def normal(mean: Values, std: Values) -> Forecast:
    """A forecast of normal distributions."""
    f, variance = torch.from_numpy(mean), torch.from_numpy(std).square()
    predictive = GaussianPredictive(f, torch.zeros_like(f), variance)
    lower, upper = (bound.numpy() for bound in predictive.interval(LEVEL))
    quantiles = mean[:, None] + std[:, None] * torch.special.ndtri(torch.from_numpy(QUANTILES)).numpy()
    extra = lambda y: {"crps_from_quantiles": quantile_crps(quantiles, y)}  # noqa: E731
    return Forecast(mean, lower, upper, lambda y: float(metrics.crps(predictive, y)), extra)


def ours(method: str) -> Callable[[Values, Values, int], tuple[Predict, str]]:
    """`BayesNormRegressor` as it comes."""

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
        """Mean loss, and number of trees."""
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
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(X, y)
    return lambda X: normal(*model.predict(X, return_std=True)), ""


def ngboost(X: Values, y: Values, seed: int) -> tuple[Predict, str]:
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


def measured(name: str, model: str, split: int) -> dict[str, Any]:
    """One row of the results: time and scores, or why there are none."""
    X, y = load_uci(name)
    rows, test = paper_split(len(X), split)
    row: dict[str, Any] = {"set": name, "model": model, "split": split, "rows": len(rows)}
    load, start = os.getloadavg()[0], time.perf_counter()
    try:
        predict, chosen = MODELS[model](X[rows], y[rows], split)
    except LeftOut as reason:
        return row | {"left out": str(reason)}
    fitted = time.perf_counter()
    forecast = predict(X[test])
    predicted, target = time.perf_counter(), y[test]
    return row | {
        "fit_s": round(fitted - start, 2),
        "predict_s": round(predicted - fitted, 3),
        "rmse": float(np.sqrt(np.mean((forecast.mean - target) ** 2))),
        "crps": forecast.crps(target),
        "coverage": covered(forecast.lower, forecast.upper, target),
        "width": float(np.mean(forecast.upper - forecast.lower)),
        **forecast.extra(target),
        "chosen": chosen,
        "load": round(load, 2),
    }


def means(rows: list[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """One line per model, over the splits that it has."""
    for model in MODELS:
        own = [row for row in rows if (row["set"], row["model"]) == (name, model)]
        done = [row for row in own if "crps" in row]
        keys = [
            key for key in ("fit_s", "rmse", "crps", "coverage", "width", "own_coverage") if done and key in done[0]
        ]
        if own:
            line = {key: statistics.mean(row[key] for row in done) for key in keys}
            yield {"model": model, "splits": len(done), **(line or {"left out": own[0]["left out"]})}


def print_tables(rows: list[dict[str, Any]]) -> None:
    """A table per set, the best CRPS marked, and what they come to."""
    tally: dict[str, list[tuple[float, float]]] = {model: [] for model in MODELS}
    names = [name for name in SETS if any(row["set"] == name for row in rows)]
    for name in names:
        lines = list(means(rows, name))
        best = min((line["crps"] for line in lines if "crps" in line), default=None)
        trained = next(row["rows"] for row in rows if row["set"] == name)
        print(
            f"\n{name}, {trained:,} training rows\n{'':22}splits   fit s      RMSE       CRPS  coverage   own     width"
        )
        for line in lines:
            if "crps" not in line:
                print(f"{line['model']:22}{line['left out']}")
                continue
            tally[line["model"]].append((line["crps"] / best, line["coverage"]))
            own = f"{line['own_coverage']:6.3f}" if "own_coverage" in line else " " * 6
            print(
                f"{line['model']:22}{line['splits']:6} {line['fit_s']:7.1f} {line['rmse']:9.4g} {line['crps']:9.4g}"
                f"{'*' if line['crps'] == best else ' '} {line['coverage']:8.3f} {own} {line['width']:9.4g}"
            )
    print(f"\n{'':22}  sets  best CRPS  CRPS / best  coverage in .86-.94")
    for model, found in tally.items():
        if found:
            ratios, coverages = zip(*found, strict=True)
            right = sum(0.86 <= round(value, 3) <= 0.94 for value in coverages)
            wins, mean = sum(ratio == 1 for ratio in ratios), statistics.geometric_mean(ratios)
            print(f"{model:22}{len(found):6} {wins:10} {mean:12.3f} {right:14} of {len(found)}")


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, metavar="SET")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS), metavar="MODEL")
    parser.add_argument("--splits", type=int, help="of the paper's (default: 3; power 2, protein 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/tabular.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    has_ngboost = importlib.util.find_spec("ngboost") is not None
    packages = ["scikit-learn", "pandas", *(["ngboost"] if has_ngboost else [])]
    report: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    rows: list[dict[str, Any]] = report["rows"]
    made_on = report.get("machine", {}) | machine() | {name: version(name) for name in packages}
    report["machine"] = made_on | {"bayesnorm": bn.__version__, "threads": options.threads}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    have = {(row["set"], row["model"], row["split"]) for row in rows}
    units = (
        (name, model, split)
        for split in range(1, (options.splits or 3) + 1)
        for name in options.sets
        for model in options.models
        if split <= (options.splits or SPLITS.get(name, 3)) and (has_ngboost or model != "NGBoost")
    )
    with threadpool_limits(options.threads):
        for name, model, split in (unit for unit in units if unit not in have):
            rows.append(measured(name, model, split))
            write_bytes(options.out, (json.dumps(report, indent=1) + "\n").encode())
            print({key: value for key, value in rows[-1].items() if key != "rows"}, flush=True)
    if not has_ngboost and "NGBoost" in options.models:
        print("NGBoost is not installed here: benchmarks/tabular_requirements.txt says how to add its rows.")
    print_tables(rows)


if __name__ == "__main__":
    main()
