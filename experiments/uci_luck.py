"""Measure how much a data set's results depend on the random networks of cross-validation.

Runs the paper's protocol (preset "paper": splits, folds, grid, retraining) repeatedly on one set, MCBN only, with other
seeds for the networks of the folds and for the retrained ones; the rows of splits and folds stay the same. The standard
errors of a table are over 25 networks whose hyper-parameters were chosen once, so they do not include this variation.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from .data import UCI_SETS
from .evidence import write_numbers
from .known_names import require_known
from .options import FastestDevice, fastest
from .stacked_networks import fit_stacked
from .uci.cross_validation import DRAWN, Trial, cross_validate, settings_for
from .uci.folds import Data
from .uci.presets import PRECISIONS, PRESETS
from .uci.scoring import Asked, Noise, scores
from .uci.unit import Networks, PaperRun


def main(
    name: Annotated[str, typer.Option("--set", help="The data set.")] = "boston",
    repeats: Annotated[int, typer.Option(min=1, help="Number of repetitions of the protocol.")] = 3,
    device: FastestDevice = None,
    out: Annotated[Path | None, typer.Option(help="Output file. [default: results/uci_luck_SET.json]")] = None,
) -> None:
    """Repeat the paper's protocol on one set with other seeds for all networks.

    Finished batch sizes are stored in the file, and the same command continues. Needs the data folder.

    \b
    python -m experiments uci-luck --set boston --repeats 3
    """
    require_known("--set", [name], UCI_SETS)
    place, path = fastest(device), out or Path("results") / f"uci_luck_{name}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["repeat"], row["batch size"]) for row in rows}
    paper = PRESETS["paper"]
    for repeat in range(1, repeats + 1):  # 0 would give the benchmark's own seeds
        for size in settings_for(paper, Data(name, paper.splits, paper.folds), "bn"):
            if (repeat, size) in done:
                continue
            started = time.perf_counter()
            with torch.no_grad():
                rows.append(scores_at(name, size, repeat, place))
            print(f"repeat {repeat}, M = {size:.0f}: {time.perf_counter() - started:.0f} s", flush=True)
            write_numbers(path, {"set": name, "rows": rows}, place)
        means = result([row for row in rows if row["repeat"] == repeat])
        print(
            f"repeat {repeat}: RMSE {means['rmse']:.3f} ± {means['rmse_error']:.3f}, CRPS {means['crps']:.3f} ± "
            f"{means['crps_error']:.3f}, normalised {means['normalised_crps']:.1f} ± "
            f"{means['normalised_crps_error']:.1f} %",
            flush=True,
        )


def scores_at(dataset: str, batch_size: float, repeat: int, device: str) -> dict[str, Any]:
    """Return the cross-validated RMSE of every split, and test scores of its five networks, at one batch size."""
    paper = PRESETS["paper"]
    count = len(paper.seeds)
    preset = dataclasses.replace(
        paper, seeds=tuple(seed + repeat * count for seed in paper.seeds), fold_seed=paper.fold_seed * (1 + repeat)
    )
    trial = Trial(preset, Data(dataset, preset.splits, preset.folds), "bn", batch_size, device)
    unit = PaperRun(trial)
    validated = cross_validate(trial)
    chosen = validated.chosen[DRAWN]

    def asked(networks: Networks) -> Asked:
        return networks.moments(fit_stacked(trial.method, networks.stack, networks.train), preset.samples)

    noise = Noise.chosen(asked(unit.folds(validated, chosen)), PRECISIONS[dataset], by_pll=False)
    result = scores(asked(unit.final(chosen)), noise)
    return {
        "repeat": repeat,
        "batch size": batch_size,
        "cv_rmse": chosen.cv_rmse,
        "weight_decay": chosen.weight_decay,
        "epochs": chosen.epochs,
        **{name: result[name].tolist() for name in ("rmse", "crps", "normalised_crps")},
    }


def result(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return means over splits and networks, at the batch size that each split chooses by its cross-validated RMSE."""
    splits = range(len(rows[0]["cv_rmse"]))
    best = [min(rows, key=lambda row: row["cv_rmse"][split]) for split in splits]
    means = {}
    for name in ("rmse", "crps", "normalised_crps"):
        count = len(rows[0][name]) // len(splits)
        values = [value for split in splits for value in best[split][name][split * count : (split + 1) * count]]
        means[name] = statistics.fmean(values)
        means[f"{name}_error"] = statistics.stdev(values) / len(values) ** 0.5
    return means
