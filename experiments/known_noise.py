"""Compare predicted noise and uncertainty with the truth on simulated tables of 300 to 20,000 rows.

Targets are Friedman's function of five of eight columns plus normal noise, or a smooth function of 3 of 16 collinear
columns with almost no noise. A fit predicts the noise and the epistemic uncertainty, that is, the error of its mean
compared with the true function, which only the simulation knows. Scores are on new rows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bayesnorm.tabular import BayesNormRegressor

from .evidence import show_progress, write_numbers
from .known_names import require_known
from .options import OUT, FastestDevice, OutFolder, Size, fastest
from .pieces import measured_once

Values = NDArray[np.float64]

NEW_ROWS = 4000
# Table, rows, noise, and number of seeds.
CASES: dict[Size, list[tuple[str, int, float, int]]] = {
    Size.quick: [("friedman", 300, 1.0, 1)],
    Size.paper: [
        *(("friedman", rows, 1.0, 3) for rows in (300, 1_000, 3_000, 10_000, 20_000)),
        *(("friedman", 1_000, noise, 3) for noise in (0.3, 3.0)),
        ("collinear", 10_000, 0.001, 10),
    ],
}
OPTIONS: dict[Size, dict[str, Any]] = {Size.quick: {"max_epochs": 20}, Size.paper: {}}


def friedman(rows: int, generator: np.random.Generator) -> tuple[Values, Values]:
    """Return inputs, and Friedman's first function of five of them (1991)."""
    X = generator.random((rows, 8))
    bent = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return X, bent + 10 * X[:, 3] + 5 * X[:, 4]


def collinear(rows: int, generator: np.random.Generator) -> tuple[Values, Values]:
    """Return 16 inputs that are nearly combinations of four directions, and a smooth function of three of them."""
    mixing = np.random.default_rng(0).standard_normal((4, 16))
    X = generator.standard_normal((rows, 4)) @ mixing + 0.05 * generator.standard_normal((rows, 16))
    return X, np.tanh(X[:, 0]) + 0.5 * np.sin(X[:, 1]) + 0.1 * X[:, 2]


TABLES = {"friedman": friedman, "collinear": collinear}


def main(
    preset: Annotated[
        Size, typer.Option(help="How much to measure: one small table (quick), or all (paper).")
    ] = Size.quick,
    table: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(TABLES)}. [default: all]")] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Compare predicted noise and uncertainty with the truth on simulated tables.

    Every fit is stored and not repeated.

    \b
    python -m experiments known-noise --preset paper --out out
    """
    require_known("--table", table or (), TABLES)
    where, rows, stored = fastest(device), list[dict[str, Any]](), out / "known_noise"
    for name, size, noise, seeds in CASES[preset]:
        for seed in range(seeds) if name in (table or TABLES) else ():
            show_progress(f"{name}, {size:,} rows, noise {noise:g}, seed {seed}")
            settings: dict[str, Any] = {"table": name, "size": size, "noise": noise, "seed": seed}
            find = partial(measured, **settings, device=where, **OPTIONS[preset])
            file = f"{preset}_{name}_{size}_{noise:g}_{seed}.json"
            rows.append(measured_once(stored / file, settings | OPTIONS[preset], find))
            show_progress("")
            print(text(rows[-1]), flush=True)
    print(summary(rows))
    write_numbers(out / "known_noise.json", {"preset": str(preset), "rows": rows}, where)


def measured(table: str, size: int, noise: float, seed: int, **options: Any) -> dict[str, Any]:
    """Fit one table, and return the predicted and the true values."""
    generator = np.random.default_rng(seed)
    X, f = TABLES[table](size, generator)
    new, truth = TABLES[table](NEW_ROWS, generator)
    y, target = f + noise * generator.standard_normal(size), truth + noise * generator.standard_normal(NEW_ROWS)
    started = time.perf_counter()
    model = BayesNormRegressor(random_state=seed, **options).fit(X, y)
    seconds = time.perf_counter() - started
    predictive, (lower, upper) = model.predict_dist(new), model.predict_interval(new, 0.9)
    mean = predictive.mean[:, 0].numpy()
    return {
        "table": table,
        "rows": size,
        "noise": noise,
        "seed": seed,
        "said_noise": round(float(predictive.aleatoric.mean()) ** 0.5, 5),
        "uncertainty": round(float(np.sqrt(np.mean((mean - truth) ** 2))), 5),
        "said_uncertainty": round(float(predictive.epistemic.mean()) ** 0.5, 5),
        "said_share": round(float(predictive.epistemic.mean() / predictive.variance.mean()), 4),
        "share": round(float(np.mean((mean - truth) ** 2) / np.mean((mean - target) ** 2)), 4),
        "rmse": round(float(np.sqrt(np.mean((mean - target) ** 2))), 5),
        "log_likelihood": round(float(predictive.log_prob(target[:, None]).mean()), 4),
        "coverage": round(float(np.mean((lower <= target) & (target <= upper))), 4),
        "chosen": model.selection_.chosen.encoding,
        "seconds": round(seconds, 1),
    }


def text(row: dict[str, Any]) -> str:
    """Return a line of text for a row."""
    return (
        f"{row['table']:10} {row['rows']:6,} rows  noise {row['said_noise']:.4g} (true {row['noise']:g})  uncertainty "
        f"{row['said_uncertainty']:.4g} (true {row['uncertainty']:.4g})  epistemic share {row['said_share']:.2f} "
        f"(true {row['share']:.2f})  coverage of 90 % intervals {row['coverage']:.3f}  log likelihood "
        f"{row['log_likelihood']:.2f}  {row['seconds']:.0f} s"
    )


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table: one line per kind of table, with means over seeds and the range of coverages."""
    heads = (
        "table",
        "rows",
        "tables",
        "noise",
        "said",
        "uncertainty",
        "said",
        "uncertainty's share",
        "said",
        "90 % hold",
        "log lik.",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    keys = dict.fromkeys((row["table"], row["noise"], row["rows"]) for row in rows)
    for name, noise, size in keys:
        matching = [row for row in rows if (row["table"], row["noise"], row["rows"]) == (name, noise, size)]

        def mean(key: str, matching: Sequence[dict[str, Any]] = matching) -> float:
            return statistics.fmean(row[key] for row in matching)

        held = f"{min(row['coverage'] for row in matching):.3f} to {max(row['coverage'] for row in matching):.3f}"
        told = (f"{mean(key):.3g}" for key in ("said_noise", "uncertainty", "said_uncertainty"))
        shares = (f"{mean(key):.2f}" for key in ("share", "said_share"))
        least = f"{min(row['log_likelihood'] for row in matching):.2f}"
        cells = (name, f"{size:,}", len(matching), f"{noise:g}", *told, *shares, held, f"{least} or more")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)
