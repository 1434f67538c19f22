"""Plots of the regression benchmark, from the files that `python -m experiments export` writes.

`uci_uncertainty.png` shows errors of test rows sorted by uncertainty, for MCBN on every set (the MCBN paper's
uncertainty-error plots), and `uci_uncertainty_dropout.png` for MC dropout. `uci_batch_size.png` shows the normalised
CRPS for one training batch size M at every effective batch size M', and the paper's choice M' = M. `uci_samples.png`
shows how many samples are enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from bayesnorm.errors import BayesNormError
from bayesnorm.plots import Plot, UncertaintyErrorPlot

from .evidence import write_picture
from .options import OUT, OutFolder
from .plots import draw_grid
from .sensitivity import Scores, SensitivityCurve
from .teye_tables.rows import read_header, read_rows
from .uci.presets import preset_named
from .uci.results import ROWS

TRAINED_WITH = (32, 128, 512)
"""The training batch sizes in the plot."""

LARGEST, LOWEST = 4096, -60.0
"""Limits of the plot: largest effective batch size, and lowest normalised score."""


def main(
    rows: Annotated[Path, typer.Option(help="The CSV file of `export`, with the JSON file of the same name.")] = ROWS,
    out: OutFolder = OUT,
) -> None:
    """Make the uncertainty-error plots of the MCBN paper, and plots over batch sizes and samples.

    \b
    python -m experiments teye-uncertainty --rows results/uci_paper.csv --out out
    """
    result, header = read_rows(rows), read_header(rows)
    if header is None:
        raise BayesNormError(
            f"--rows: {rows.with_suffix('.json')} does not exist. Run `python -m experiments export`, which "
            "writes both."
        )
    pictures: dict[str, tuple[Mapping[str, Plot], str]] = {
        "uci_uncertainty": (uncertainty(header, "bn"), "MCBN: test errors, sorted by uncertainty"),
        "uci_uncertainty_dropout": (uncertainty(header, "dropout"), "MC dropout: test errors, sorted by uncertainty"),
        "uci_batch_size": (batch_sizes(header), "MCBN: normalised CRPS at every effective batch size"),
        "uci_samples": (samples(result), "How many samples are enough? (MCBN, M = 128)"),
    }
    for name, (plots, title) in pictures.items():
        if plots:
            write_picture(out / f"{name}.png", draw_grid(plots, title=title))


def uncertainty(header: dict[str, Any], family: str) -> dict[str, UncertaintyErrorPlot]:
    """Return plots of the test rows of the first split and seed at the chosen setting, by set."""
    return {
        unit["dataset"]: UncertaintyErrorPlot.from_arrays(
            np.array(unit["points"]["error"]), np.array(unit["points"]["std"]), unit["points"]["constant_std"][0]
        )
        for unit in sorted(header["points"], key=lambda unit: unit["dataset"])
        if unit["family"] == family
    }


def batch_sizes(header: dict[str, Any]) -> dict[str, SensitivityCurve]:
    """Return the normalised CRPS of test rows over M', a line for each training batch size, by set."""
    curves = {(unit["dataset"], unit["setting"]): unit["curve"] for unit in header["curves"]}
    preset = preset_named(header["preset"])
    runs = len(preset.splits) * len(preset.seeds)
    results: dict[str, SensitivityCurve] = {}
    for name in sorted({dataset for dataset, _ in curves}):
        series = {}
        for size in TRAINED_WITH:
            points = [point for point in curves.get((name, float(size)), []) if _in_sight(point)]
            at, mean, error = (
                np.array([point[column] for point in points])
                for column in ("effective_batch_size", "normalised_crps_mean", "normalised_crps_error")
            )
            series[f"trained with M = {size}"] = Scores(at, mean, error, np.full(len(points), runs))
        results[name] = SensitivityCurve(series, "effective batch size M'", "normalised CRPS (%)", baseline=0.0)
    return results


def _in_sight(point: dict[str, float]) -> bool:
    return point["effective_batch_size"] <= LARGEST and point["normalised_crps_mean"] > LOWEST


def samples(rows: list[dict[str, str]]) -> dict[str, SensitivityCurve]:
    """Return the scores of MCBN trained with M = 128 over the number of samples T, by set."""
    result: dict[str, dict[str, dict[float, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        if row["method"] == "MCBN" and row["setting"] in ("128", "128.0"):
            at = float(row["passes"] or preset_named(row["preset"]).samples)
            for name, column in (("CRPS", "normalised_crps"), ("PLL", "normalised_pll")):
                result[row["dataset"]][name][at].append(float(row[column]))
    return {
        name: SensitivityCurve.from_runs(series, "samples T", "normalised score (%)", baseline=0.0)
        for name, series in sorted(result.items())
    }
