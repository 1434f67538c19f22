"""Measure how the time of tables grows with rows, columns and categories.

    python -m benchmarks.tabular_columns [--wide] [--out results/tabular_columns.json]

Runs `BayesNormRegressor()` with its defaults on simulated tables, and states CPU seconds on one core. The target is a
sum of ten columns with noise. Of a table with more than 300 columns, or with more columns than rows, only columns that
seem to be associated with the target are used; for such tables, the scores on new rows are stated too.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bayesnorm.errors import BayesNormWarning
from bayesnorm.tabular import BayesNormRegressor
from bayesnorm.writing import write_bytes
from experiments.machine import machine

# Rows, columns, and categories of each column (0: a column of numbers).
TABLES = (
    (100, 20, 0),
    (400, 20, 0),
    (100, 100, 0),
    (100, 200, 0),
    (100, 1_000, 0),
    (100, 5_000, 0),
    (100, 20, 2),
    (100, 20, 30),
)

# Rows, columns, and columns that the target depends on, of wide tables whose scores are measured.
WIDE_TABLES = ((100, 200, 5), (100, 5_000, 5), (300, 5_000, 5), (100, 5_000, 0), (2_000, 600, 10))

NEW_ROWS, EXPLAINED_ROWS, SCORED_ROWS = 100, 2, 2_000


def table(
    rows: int, columns: int, categories: int, seed: int, informative: int = 10
) -> tuple[pd.DataFrame, np.ndarray]:
    """Return simulated inputs and targets."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, columns))
    if categories:
        values = generator.integers(0, categories, (rows, columns)).astype(np.float64)
    y = values[:, :informative].sum(1) + 0.3 * generator.standard_normal(rows)
    names = [f"x{number}" for number in range(columns)]
    frame = pd.DataFrame(values, columns=names)
    return (frame.astype(int).astype(str).astype(object) if categories else frame), y


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor time of a call, in seconds, and its result."""
    started = time.process_time()
    result = work()
    return round(time.process_time() - started, 2), result


def measured(rows: int, columns: int, categories: int) -> dict[str, float]:
    """Return the time of fitting, predicting, comparing and explaining one table."""
    X, y = table(rows, columns, categories, 0)
    new, _ = table(NEW_ROWS, columns, categories, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesNormWarning)
        fit, model = cpu_seconds(lambda: BayesNormRegressor(random_state=0).fit(X, y))
    return {
        "rows": rows,
        "columns": columns,
        "categories": categories,
        "fit": fit,
        "predict": cpu_seconds(lambda: model.predict_with_uncertainty(new))[0],
        "drift": cpu_seconds(lambda: model.drift(new))[0],
        "explain": cpu_seconds(lambda: model.explain_uncertainty(new[:EXPLAINED_ROWS]))[0],
    }


def scored(rows: int, columns: int, informative: int) -> dict[str, float]:
    """Return the scores on new rows of a wide table, and those of a normal distribution without inputs."""
    X, y = table(rows, columns, 0, 0, informative)
    new, y_new = table(SCORED_ROWS, columns, 0, 1, informative)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BayesNormWarning)
        seconds, model = cpu_seconds(lambda: BayesNormRegressor(random_state=0).fit(X, y))
    predictive = model.predict_dist(new)
    error = np.square(predictive.mean.numpy().ravel() - y_new).mean()
    constant = 0.5 * (np.log(2 * np.pi * y.var()) + np.square(y_new - y.mean()).mean() / y.var())
    return {
        "rows": rows,
        "columns": columns,
        "informative": informative,
        "used": int((model.preprocessing_.widths > 0).sum()),
        "fit": seconds,
        "r2": round(1 - float(error) / y_new.var(), 3),
        "nll": round(-float(predictive.log_prob(torch.from_numpy(y_new)).mean()), 3),
        "nll without inputs": round(float(constant), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/tabular_columns.json"))
    parser.add_argument("--wide", action="store_true", help="measure only tables with chosen columns; keep the others")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured(50, 2, 0)  # warms up
    stored = json.loads(options.out.read_text())["CPU seconds"] if options.wide else []
    before = {(entry["rows"], entry["columns"], entry["categories"]): entry for entry in stored}
    narrow = {sizes for sizes in TABLES if sizes[1] <= min(300, sizes[0])}
    report = {
        "machine": machine("cpu"),
        "predicted rows": NEW_ROWS,
        "explained rows": EXPLAINED_ROWS,
        "scored rows": SCORED_ROWS,
        "CPU seconds": [before[sizes] if sizes in narrow and sizes in before else measured(*sizes) for sizes in TABLES],
        "wide tables": [scored(*sizes) for sizes in WIDE_TABLES],
    }
    text = json.dumps(report, indent=1)
    print(text)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(options.out, (text + "\n").encode())


if __name__ == "__main__":
    main()
