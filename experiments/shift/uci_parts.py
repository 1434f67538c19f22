"""Train a network on one part of a UCI set and score it on another, before and after `adapt`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

import bayesnorm as bn
from bayesnorm.engines import MonteCarlo
from bayesnorm.metrics import pll, rmse
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import RegressionPredictive

from ..cosine_training import train_steps
from ..data import load_uci
from ..networks import paper_mlp
from ..splits import Rows
from .presets import BATCH_SIZE

COLUMNS = {"power": (0, "temperature"), "concrete": (0, "cement")}
"""The column of a set that defines the training part: rows up to its 60 % quantile."""

TRAINED_UP_TO = 0.6
TESTED = 64
"""Number of rows for `drift`."""

GAUGE_FACTOR, GAUGE_OFFSET = 1.3, 0.5
STEPS = 4000

Row = dict[str, Any]


def measure_table(name: str, seed: int, steps: int = STEPS) -> list[Row]:
    """Train on one part of a set, and score three kinds of rows before and after `adapt`.

    "like training" are held-out rows of that part; "range" are rows beyond it; "gauges" are the held-out rows with
    changed gauges (all columns are multiplied by 1.3 and shifted by half a standard deviation). Half of the rows of a
    kind are used without labels for `adapt`, the other half is scored, in standard deviations of the training targets.
    The RMSE that the posterior expects without targets is the root of its mean predictive variance.
    """
    x, y = (torch.tensor(part, dtype=torch.float32) for part in load_uci(name))
    column = x[:, COLUMNS[name][0]]
    inside = column <= column.quantile(TRAINED_UP_TO)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    near, far = order[inside[order]], order[~inside[order]]
    held = len(near) // 4
    training = near[2 * held :]
    (x_std, x_mean), (y_std, y_mean) = (torch.std_mean(part[training], 0) for part in (x, y))
    x, y = (x - x_mean) / x_std.clamp_min(1e-6), ((y - y_mean) / y_std)[:, None]
    posterior = _posterior((x[training], y[training]), (x[near[:held]], y[near[:held]]), seed, steps)
    like = near[held : 2 * held]
    kinds = {
        "like training": (x[like], y[like]),
        "range": (x[far], y[far]),
        "gauges": (GAUGE_FACTOR * x[like] + GAUGE_OFFSET, y[like]),
    }
    rows = []
    for kind, (new, targets) in kinds.items():
        half = len(new) // 2
        adapted = bn.adapt(posterior, new[:half])
        before, after = (_scores(fitted, new[half:], targets[half:]) for fitted in (posterior, adapted))
        p_value = bn.drift(posterior, new[:TESTED]).p_value
        rows.append(
            {"set": name, "seed": seed, "kind": kind, "adapted_to": half, "p_value": p_value}
            | {"rmse": before[0], "nll": before[1], "rmse_adapted": after[0], "nll_adapted": after[1]}
            | {"expected_rmse": before[2], "coverage": before[3]}
        )
    return rows


def _posterior(rows: Rows, validation: Rows, seed: int, steps: int) -> Posterior:
    """Train a network with two layers of 50, and return MCBN with calibrated noise and batch size."""
    network = paper_mlp(rows[0].shape[1], 1, eps=1e-5, seed=seed)
    train_steps(network, rows, torch.nn.functional.mse_loss, steps=steps, batch_size=BATCH_SIZE, seed=seed)
    return bn.calibrate(bn.MCBN(BATCH_SIZE).fit(network, rows[0], bn.Gaussian(1.0), seed=seed), *validation)


def _scores(posterior: Posterior, x: Tensor, y: Tensor) -> tuple[float, ...]:
    """Return RMSE, NLL, the expected RMSE, and the share of targets inside the interval of 95 %."""
    predictive = posterior.predict(x, MonteCarlo(64))
    assert isinstance(predictive, RegressionPredictive)
    low, high = predictive.interval(0.95)
    inside = ((low <= y) & (y <= high)).double().mean()
    expected = predictive.variance.mean().sqrt()
    return tuple(round(float(score), 4) for score in (rmse(predictive, y), -pll(predictive, y), expected, inside))


def table_text(rows: list[Row]) -> str:
    """Return means over splits, one line for each set and kind of rows."""
    head = f"{'set':10}{'new rows':16}{'RMSE':>8}{'adapted':>9}{'NLL':>9}{'adapted':>9}{'p < 0.05':>9}{'median p':>10}"
    head += f"{'expected RMSE':>14}{'coverage':>9}"
    lines = [f"targets in standard deviations of the training rows; drift tested on {TESTED} rows", head]
    for name, kind in dict.fromkeys((row["set"], row["kind"]) for row in rows):
        group = [row for row in rows if (row["set"], row["kind"]) == (name, kind)]
        scores = ("rmse", "rmse_adapted", "nll", "nll_adapted", "expected_rmse", "coverage")
        mean = {score: np.mean([row[score] for row in group]) for score in scores}
        p_values = np.array([row["p_value"] for row in group])
        lines.append(
            f"{name:10}{kind:16}{mean['rmse']:8.3f}{mean['rmse_adapted']:9.3f}{mean['nll']:9.3f}"
            f"{mean['nll_adapted']:9.3f}{np.mean(p_values < 0.05):9.2f}{np.median(p_values):10.2g}"
            f"{mean['expected_rmse']:14.3f}{mean['coverage']:9.2f}"
        )
    return "\n".join(lines)
