"""List the units of the benchmark, and combine their results."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bayesnorm.errors import BayesNormError
from bayesnorm.writing import write_bytes

from ..bench import Store, Unit, write_csv
from ..data import UCI_SETS
from ..means import mean_and_error
from ..significance import significance
from .cross_validation import settings_for
from .folds import Data
from .presets import preset_named

METHODS_OF: dict[str, tuple[str, ...]] = {
    "bn": (
        "BN",
        "CUBN",
        "MCBN",
        "MCBN centred",
        "MCBN M' by CRPS",
        "MCBN centred M' by CRPS",
        "MCBN M' by ELBO",
        "GaussianBN",
        "GaussianBN rank 16",
        "StochasticBN",
        "DeepEnsemble",
    ),
    "dropout": ("DO", "CUDO", "MCDropout"),
    "bbb": ("BayesByBackprop",),
    "mnf": ("MNF",),
}
"""The methods of each family of networks; all methods of a family use the same networks, in the same units of work."""

METHODS: tuple[str, ...] = tuple(method for methods in METHODS_OF.values() for method in methods)

BY_POINT = ("BN", "DO", "DeepEnsemble")
"""Methods whose hyper-parameters are chosen by the network's own RMSE; for others, by that of the mean over samples."""

PUBLISHED = ("MCBN", "MCDropout")

COLUMNS = (
    "preset", "dataset", "family", "setting", "split", "seed", "method", "passes", "chosen", "rmse", "crps", "pll",
    "normalised_crps", "normalised_pll", "pll_own", "normalised_pll_own", "coverage_95", "precision",
    "effective_batch_size", "weight_decay", "epochs", "cv_rmse", "cv_crps",
)  # fmt: skip


ROWS = Path("results") / "uci_paper.csv"
"""Where the committed results of the preset "paper" are, in a checkout."""

EXPERIMENT = "uci-"
"""Prefix of the names of the benchmark's tables in a store."""

RUNS = " runs"
"""Suffix of the name of the table with the times of runs."""


def experiment(preset: str) -> str:
    """Return the name of a preset's table in a store."""
    return f"{EXPERIMENT}{preset}"


def units(
    preset: str, *, sets: Sequence[str] | None = None, methods: Sequence[str] | None = None, device: str = "cpu"
) -> list[Unit]:
    """Return the units to compute, smaller sets first.

    Args:
        preset: "quick" or "paper".
        sets: Names of data sets; None takes the preset's own.
        methods: Names from `METHODS`; None takes all. A method includes the others of its family.
        device: Device for training stacks of networks.
    """
    chosen = preset_named(preset)
    names = tuple(sets) if sets else chosen.sets
    _require("set", names, UCI_SETS)
    _require("method", methods or (), METHODS)
    families = [
        family for family, family_methods in METHODS_OF.items() if not methods or set(family_methods) & set(methods)
    ]
    module = __package__
    wanted = []
    for name in sorted(names, key=lambda name: len(Data(name, (1,), chosen.folds).table[0])):
        data = Data(name, chosen.splits, chosen.folds)
        for family in families:
            if family in ("bn", "dropout"):
                for setting in settings_for(chosen, data, family):
                    parameters = {"dataset": name, "family": family, "setting": setting, "device": device}
                    wanted.append(Unit(experiment(preset), f"{module}.unit:run", {"preset": preset, **parameters}))
                continue
            for split in chosen.splits:
                for seed in chosen.seeds:
                    parameters = {"dataset": name, "family": family, "split": split, "seed": seed}
                    wanted.append(Unit(experiment(preset), f"{module}.weights:run", {"preset": preset, **parameters}))
    return wanted


def note_run(store: Store, preset: str, *, seconds: float, workers: int | None, finished: int) -> None:
    """Store how long a run took, with its results.

    Args:
        store: The store of the results.
        preset: "quick" or "paper".
        seconds: Seconds from its start to its end.
        workers: Number of units at once; None if the runner chose it.
        finished: Number of units that it computed.
    """
    at = datetime.now(UTC).isoformat(timespec="seconds")
    unit = Unit(f"{experiment(preset)}{RUNS}", f"{__name__}:note_run", {"preset": preset, "ended": at})
    store.add_result(unit, {"wall": round(seconds, 3), "workers": workers, "finished": finished})


def rows(store: Store, preset: str) -> list[dict[str, Any]]:
    """Return one row for each run of each method at each setting; `chosen` if cross-validation chose the setting."""
    table = []
    for unit in _results(store, preset):
        shared = {name: unit.get(name) for name in ("preset", "dataset", "family", "setting")}
        for row in unit["rows"]:
            table.append({name: {**shared, **row}.get(name) for name in COLUMNS})
    best: dict[tuple[Any, ...], tuple[float, float]] = {}
    for row in table:
        if row["cv_rmse"] is not None:
            key = _choice(row)
            best[key] = min(best.get(key, (math.inf, math.inf)), _rank(row))
    for row in table:
        row["chosen"] = int(row["cv_rmse"] is None or _rank(row) == best[_choice(row)])
    return table


def _results(store: Store, preset: str) -> list[dict[str, Any]]:
    """Return the results of units; if a unit was computed on a CPU and on a GPU, only the GPU's result counts."""
    names = ("dataset", "family", "setting", "split", "seed")
    return list({tuple(unit.get(name) for name in names): unit for unit in store.rows(experiment(preset))}.values())


def computed_twice(store: Store, preset: str) -> str:
    """Return a sentence about units with results of a CPU and of a GPU, or nothing if there are none."""
    count = len(store.rows(experiment(preset))) - len(_results(store, preset))
    return f"Units computed on a CPU and on a GPU: {count}; the GPU's results count." if count else ""


def _rank(row: dict[str, Any]) -> tuple[float, float]:
    """Return a key whose minimum is chosen: diverged networks come last, and ties are broken."""
    return math.inf if math.isnan(row["cv_rmse"]) else row["cv_rmse"], row["setting"]


def _choice(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return the group for which one setting is chosen: all rows of a set, family and split, by the same RMSE."""
    return row["dataset"], row["family"], row["split"], row["method"] in BY_POINT


def summary(store: Store, preset: str) -> str:
    """Return means over runs with their standard errors as text, set by set; stars as in the paper."""
    by_set: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows(store, preset):
        if row["chosen"] and row["passes"] is None:
            by_set[row["dataset"]][row["method"]].append(row)
    if not by_set:
        raise BayesNormError(f"store: {_without(preset)}")
    lines = [
        f"UCI regression, preset {preset}: means over runs ± standard errors. Normalised scores: 0 % is constant",
        "uncertainty with the method's own means, 100 % the best possible; stars: two-sided t-test against 0.",
    ]
    for name in sorted(by_set):
        lines += ["", name, f"{'':24} {'runs':>4} {'RMSE':>15} {'CRPS':>15} {'PLL':>15} {'norm. CRPS %':>18} "
                  f"{'norm. PLL %':>18} {'95 %':>5}"]  # fmt: skip
        for method in METHODS:
            if runs := by_set[name].get(method):
                lines.append(_line(method, runs))
    if said := computed_twice(store, preset):
        lines += ["", said]
    return "\n".join(lines)


def _line(method: str, runs: list[dict[str, Any]]) -> str:
    def shown(column: str, digits: int, stars: bool = False) -> str:
        values = [float(row[column]) for row in runs]
        if not all(map(math.isfinite, values)):  # some network diverged
            return f"{statistics.fmean(values):.{digits}f}"
        marks = f" {significance(values).stars:4}" if stars and len(set(values)) > 1 else ""
        return mean_and_error(values, digits) + marks

    return (
        f"{method:24} {len(runs):>4} {shown('rmse', 3):>15} {shown('crps', 3):>15} {shown('pll', 2):>15} "
        f"{shown('normalised_crps', 1, True):>18} {shown('normalised_pll', 1, True):>18} "
        f"{shown('coverage_95', 2).split(' ')[0]:>5}"
    )


def _without(preset: str) -> str:
    return f"has no results of the preset {preset!r}. Run `python -m experiments uci` first."


def export(store: Store, preset: str, path: str | os.PathLike[str]) -> None:
    """Write `rows` as CSV, and as JSON the cost of the run and the data of its plots.

    For settings that were not chosen, only the published methods are written.
    """
    target = Path(path)
    if target.suffix == ".json":
        raise BayesNormError(
            f"path: {target} is the name of the JSON file that belongs to the CSV file. Use a name that ends in .csv."
        )
    table = rows(store, preset)
    if not table:
        raise BayesNormError(f"store: {_without(preset)}")
    written = [row for row in table if row["chosen"] or row["method"] in PUBLISHED]
    write_csv(target, COLUMNS, [[_cell(row[name]) for name in COLUMNS] for row in written])
    write_bytes(target.with_suffix(".json"), json.dumps(header(store, preset), indent=1).encode())


def header(store: Store, preset: str) -> dict[str, Any]:
    """Return hardware, versions and steps of a run, the curves over M', and the points of the uncertainty plots."""
    finished = _results(store, preset)
    families = list(dict.fromkeys(unit["family"] for unit in finished))
    machines = [unit["machine"] or {} for unit in finished]
    chosen = {(r["dataset"], r["family"], r["setting"]) for r in rows(store, preset) if r["chosen"] and _pictured(r)}
    stacks = [unit for unit in finished if "curve" in unit]
    runs = store.rows(f"{experiment(preset)}{RUNS}")
    return {
        "preset": preset,
        "hardware": sorted(
            {unit.get("hardware") or (unit["machine"] or {}).get("cpu", "unknown") for unit in finished}
        ),
        **{name: sorted({m[name] for m in machines if name in m}) for name in ("torch", "python", "bayesnorm")},
        "units": {family: sum(unit["family"] == family for unit in finished) for family in families},
        "network steps": {
            family: sum(unit["network_steps"] for unit in finished if unit["family"] == family) for family in families
        },
        "seconds of units": {
            family: round(sum(unit["unit_seconds"] for unit in finished if unit["family"] == family))
            for family in families
        },
        # Runs may have used several machines at once, so their sum is not an elapsed time.
        **({"summed seconds of runs": round(sum(run["wall"] for run in runs))} if runs else {}),
        "runs": [_run(run) for run in runs],
        "curves": [{name: unit[name] for name in ("dataset", "setting", "curve")} for unit in stacks if unit["curve"]],
        "points": [
            {name: unit[name] for name in ("dataset", "family", "setting", "points")}
            for unit in stacks
            if (unit["dataset"], unit["family"], unit["setting"]) in chosen
        ],
    }


def _run(run: dict[str, Any]) -> str:
    at_once = "" if run["workers"] is None else f", {run['workers']} at once"
    return f"{run['finished']} units in {run['wall']:.0f} s{at_once}"


def _pictured(row: dict[str, Any]) -> bool:
    """Return whether a row is of the first split and of a published method, whose points are stored."""
    return row["split"] == 1 and row["method"] in PUBLISHED


def _cell(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _require(name: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    for value in names:
        if value not in allowed:
            raise BayesNormError(f"{name} must be one of {', '.join(allowed)}, got {value!r}.")
