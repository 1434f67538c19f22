"""Measure how the time of tables grows with rows, columns and categories.

    python -m benchmarks.tabular_columns [--out results/tabular_columns.json]

Runs `BayesNormRegressor()` with its defaults on simulated tables, and states CPU seconds on one core. The target is a
sum of ten columns with noise. A table with more columns than rows, and with more than 300 columns, is projected.
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

NEW_ROWS, EXPLAINED_ROWS = 100, 2


def table(rows: int, columns: int, categories: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return simulated inputs and targets."""
    generator = np.random.default_rng(seed)
    values = generator.standard_normal((rows, columns))
    if categories:
        values = generator.integers(0, categories, (rows, columns)).astype(np.float64)
    y = values[:, :10].sum(1) + 0.3 * generator.standard_normal(rows)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/tabular_columns.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    measured(50, 2, 0)  # warms up
    report = {
        "machine": machine("cpu"),
        "predicted rows": NEW_ROWS,
        "explained rows": EXPLAINED_ROWS,
        "CPU seconds": [measured(*sizes) for sizes in TABLES],
    }
    text = json.dumps(report, indent=1)
    print(text)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(options.out, (text + "\n").encode())


if __name__ == "__main__":
    main()
