"""Measure time and memory of `BayesNormRegressor` on large tables.

    python -m benchmarks.tabular_size [--rows 200000] [--device cuda] [--out results/tabular_size_cpu.json]

Runs `BayesNormRegressor()` with its defaults on simulated tables of 20 columns. The target is a smooth function of
eight of them with steps in two, plus noise whose standard deviation depends on one. Memory is the peak that is added.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bayesnorm.tabular import BayesNormRegressor
from bayesnorm.writing import write_bytes
from experiments.machine import machine
from experiments.measuring import timed, with_added_mib

Values = NDArray[np.float64]

COLUMNS, NEW_ROWS, LEVEL = 20, 100_000, 0.9


def table(rows: int, seed: int) -> tuple[Values, Values]:
    """Return simulated inputs and targets."""
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((rows, COLUMNS))
    smooth = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * X[:, 3] ** 2 + np.tanh(X[:, 4]) - 0.3 * X[:, 5]
    steps = (X[:, 6] > 0.5) + 0.5 * (X[:, 7] > -1)
    return X, smooth + steps + np.exp(0.4 * X[:, 8]) * 0.5 * generator.standard_normal(rows)


def measured(rows: int, device: str) -> dict[str, float]:
    """Return the time and memory of fitting and predicting, and the scores of the predictions."""
    X, y = table(rows, 0)
    new, target = table(NEW_ROWS, 1)
    (fit_seconds, model), fit_mib = with_added_mib(
        lambda: timed(lambda: BayesNormRegressor(device=device, random_state=0).fit(X, y))
    )
    (seconds, predictive), mib = with_added_mib(lambda: timed(lambda: model.predict_dist(new)))
    (interval_seconds, (lower, upper)), _ = with_added_mib(lambda: timed(lambda: model.predict_interval(new, LEVEL)))
    mean = predictive.mean[:, 0].numpy()
    return {
        "rows": rows,
        "columns": COLUMNS,
        "fit seconds": fit_seconds,
        "fit MiB": fit_mib,
        "predicted rows": NEW_ROWS,
        "predict seconds": seconds,
        "predict MiB": mib,
        "interval seconds": interval_seconds,
        "rmse": float(np.sqrt(np.mean((mean - target) ** 2))),
        "noise": float(np.sqrt(np.mean((0.5 * np.exp(0.4 * new[:, 8])) ** 2))),
        "coverage": float(np.mean((lower <= target) & (target <= upper))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[200_000])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    report = {"machine": machine(options.device), "rows": [measured(rows, options.device) for rows in options.rows]}
    text = json.dumps(report, indent=1)
    print(text)
    out = options.out or Path(f"results/tabular_size_{options.device}.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out, (text + "\n").encode())


if __name__ == "__main__":
    main()
