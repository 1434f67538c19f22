"""How much of a data set's results is luck of the networks that cross-validation happens to train?

    BAYESNORM_DATA=... python benchmarks/uci_luck.py --set boston --repeats 3

Runs the paper's protocol (preset "paper": splits, folds, grid, retraining) again and again on one set, MCBN only, with
other seeds for the networks of the folds and for those that are retrained; the rows of splits and folds stay. The
standard errors of a table are over 25 networks whose hyper-parameters were chosen once: they do not know of this.
Finished batch sizes are kept in the results file, and a second run goes on where the first stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path

import torch

from bayesnorm.files import write_bytes
from experiments.machine import machine
from experiments.uci.folds import Data
from experiments.uci.presets import PRECISIONS, PRESETS
from experiments.uci.scoring import Noise, scores
from experiments.uci.selection import DRAWN, Setting, cross_validate, settings_for
from experiments.uci.unit import Networks, Unit


def one(dataset: str, batch_size: float, repeat: int, device: str) -> dict:
    """Cross-validated RMSE of every split, and test scores of its five networks, at one batch size."""
    paper = PRESETS["paper"]
    count = len(paper.seeds)
    own = dataclasses.replace(
        paper, seeds=tuple(seed + repeat * count for seed in paper.seeds), fold_seed=paper.fold_seed * (1 + repeat)
    )
    setting = Setting(own, Data(dataset, own.splits, own.folds), "bn", batch_size, device)
    unit = Unit(setting)
    validated = cross_validate(setting)
    chosen = validated.chosen[DRAWN]

    def drawn(networks: Networks):
        return networks.moments(setting.draws(networks.stack, networks.train))

    noise = Noise.chosen(drawn(unit.folds(validated, chosen)), PRECISIONS[dataset], len(own.splits))
    found = scores(drawn(unit.final(chosen)), noise)
    return {
        "repeat": repeat,
        "batch size": batch_size,
        "cv_rmse": chosen.cv_rmse,
        "weight_decay": chosen.weight_decay,
        "epochs": chosen.epochs,
        **{name: found[name].tolist() for name in ("rmse", "crps", "normalised_crps")},
    }


def result(rows: list[dict]) -> dict[str, float]:
    """Means over splits and networks, at the batch size that each split chooses by its cross-validated RMSE."""
    splits = range(len(rows[0]["cv_rmse"]))
    best = [min(rows, key=lambda row: row["cv_rmse"][split]) for split in splits]
    means = {}
    for name in ("rmse", "crps", "normalised_crps"):
        each = len(rows[0][name]) // len(splits)
        values = [value for split in splits for value in best[split][name][split * each : (split + 1) * each]]
        means[name] = statistics.fmean(values)
        means[f"{name}_error"] = statistics.stdev(values) / len(values) ** 0.5
    return means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="boston")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="default: results/uci_luck_SET.json")
    options = parser.parse_args()
    out = options.out or Path("results") / f"uci_luck_{options.set}.json"
    rows: list[dict] = json.loads(out.read_text())["rows"] if out.exists() else []
    done = {(row["repeat"], row["batch size"]) for row in rows}
    sizes = settings_for(PRESETS["paper"], Data(options.set, PRESETS["paper"].splits, PRESETS["paper"].folds), "bn")
    for repeat in range(1, options.repeats + 1):  # 0 would be the benchmark's own seeds
        for size in sizes:
            if (repeat, size) in done:
                continue
            started = time.perf_counter()
            with torch.no_grad():
                rows.append(one(options.set, size, repeat, options.device))
            print(f"repeat {repeat}, M = {size:.0f}: {time.perf_counter() - started:.0f} s", flush=True)
            found = {"machine": machine(options.device), "set": options.set, "rows": rows}
            out.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(out, json.dumps(found, indent=1).encode())
        means = result([row for row in rows if row["repeat"] == repeat])
        print(
            f"repeat {repeat}: RMSE {means['rmse']:.3f} ± {means['rmse_error']:.3f}, CRPS {means['crps']:.3f} ± "
            f"{means['crps_error']:.3f}, normalised {means['normalised_crps']:.1f} ± "
            f"{means['normalised_crps_error']:.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
