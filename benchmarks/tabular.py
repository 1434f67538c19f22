"""Tables of numbers: bayesnorm's regressor beside what people use now, on the eight UCI sets.

    python -m benchmarks.tabular [--sets yacht boston] [--splits 3] [--out results/tabular.json]

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
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from bayesnorm.data import load_uci
from bayesnorm.files import write_bytes
from benchmarks.tabular_models import MODELS, LeftOut, covered
from experiments.machine import machine
from experiments.splits import paper_split

SETS = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "protein")
"""From the fewest rows to the most."""

SPLITS = {"power": 2, "protein": 1}
"""Splits of a run that is not told how many; 3 of the other sets."""


def measured(name: str, model: str, split: int) -> dict[str, Any]:
    """Return one row of the results: time and scores, or why there are none."""
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
    """Yield one line per model, over the splits that it has."""
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
    """Print a table per set, the best CRPS marked, and what they come to."""
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
    parser.add_argument("--splits", type=int, help="how many of the paper's splits (default: 3; power 2, protein 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/tabular.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    has_ngboost = importlib.util.find_spec("ngboost") is not None
    packages = ["scikit-learn", "pandas", *(["ngboost"] if has_ngboost else [])]
    report: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    rows: list[dict[str, Any]] = report["rows"]
    made_on = report.get("machine", {}) | machine() | {name: version(name) for name in packages}
    report["machine"] = made_on | {"threads": options.threads}
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
