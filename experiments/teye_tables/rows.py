"""Read our results from a file or a store, and sort them into runs."""

from __future__ import annotations

import csv
import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesnorm.errors import BayesNormError

from ..bench import Store, open_store
from ..uci.results import EXPERIMENT, ROWS, RUNS, rows as benchmark_rows

COMMAND = "python -m experiments uci --preset paper --device cuda"
EXPORT = "`python -m experiments export`"
SCORES = ("rmse", "crps", "pll", "normalised_crps", "normalised_pll", "pll_own", "normalised_pll_own")
"""Columns with one number per run; for "_own" cross-validated PLL chose the precision, for the others CRPS."""
PASSES = 100
"""Samples of tables 8 and 9."""
SMALL_BATCHES = "uci_small_batches.csv"
"""Name of the file, next to `ROWS`, with the results of the preset "small-batches"."""
BY_NUMBER = ("bn", "dropout")
"""Families of networks whose setting is a number."""


@dataclass(frozen=True)
class Run:
    """The scores of one method on one trained network.

    Args:
        dataset: Name of the set.
        method: Our name of the method.
        setting: Training batch size, or dropout probability; None without a setting.
        split: Number of the split.
        seed: Seed of the training.
        chosen: Whether cross-validation chose `setting` for this method on this split.
        passes: Number of samples, if the rows have it.
        cv_crps: Cross-validated CRPS of `setting` on this split, if the rows have it.
        scores: The available scores of `SCORES`.
    """

    dataset: str
    method: str
    setting: float | None
    split: int
    seed: int
    chosen: bool
    passes: int | None
    cv_crps: float | None
    scores: dict[str, float]


def read_rows(
    rows_path: str | os.PathLike[str] | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    experiment: str | None = None,
) -> list[dict[str, Any]]:
    """Return rows of the benchmark from a CSV file or from a store.

    Args:
        rows_path: A CSV file with a header; by default `ROWS`.
        store: Read this instead: a `Store`, or the path of an existing one.
        experiment: Name of the run in the store; needed if there are several.
    """
    if store is None:
        path = Path(rows_path or ROWS)
        if not path.is_file():
            raise BayesNormError(f"rows_path: {path} does not exist. Run `{COMMAND}` and {EXPORT} to create it.")
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheet programs add a byte-order mark
                rows: list[dict[str, Any]] = list(csv.DictReader(file))
        except (UnicodeDecodeError, csv.Error) as error:
            raise BayesNormError(
                f"rows_path: {path} is not a CSV file ({error}). Run `{COMMAND}` and {EXPORT} to create one."
            ) from None
        if not rows:
            raise BayesNormError(f"rows_path: {path} has no rows. Run `{COMMAND}` and {EXPORT} to create them.")
        return rows + _small_batches(path, rows)
    if rows_path is not None:
        raise BayesNormError("rows_path and store were both given. Pass only one of them.")
    if isinstance(store, Store):
        return _stored_rows(store, experiment)
    with open_store(store) as opened:
        return _stored_rows(opened, experiment)


def read_header(rows_path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the JSON object next to a CSV file of rows, or None if there is none."""
    path = Path(rows_path).with_suffix(".json")
    if not path.is_file():
        return None
    try:
        head = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BayesNormError(
            f"rows_path: the file {path} next to it is not JSON ({error}). Remove or repair it."
        ) from None
    if not isinstance(head, dict):
        raise BayesNormError(
            f"rows_path: the file {path} next to it must contain a JSON object, got {type(head).__name__}."
        )
    return head


def header_text(rows_path: str | os.PathLike[str]) -> str:
    """Return the machine and settings of the rows in one line, or nothing without a JSON file."""
    head = read_header(rows_path) or {}
    head.pop("preset", None)  # the rows contain it
    return ", ".join(_flat(head))


def runs_of(rows: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Return rows as typed runs, in order; refuse rows of several presets, whose means are meaningless."""
    rows = list(rows)
    presets = sorted({str(row.get("preset") or "") for row in rows})
    if len(presets) > 1:
        raise BayesNormError(f"rows have the presets {', '.join(map(repr, presets))}. Pass rows of one preset.")
    return [_run(row) for row in rows]


def main_runs(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of the benchmark itself: those without a number of samples, or else with the most samples."""
    most = max((run.passes or 0 for run in runs), default=0)
    unsaid = any(run.passes is None for run in runs)
    return [run for run in runs if run.passes is None or (not unsaid and run.passes == most)]


def scores(runs: Iterable[Run], dataset: str, method: str, score: str) -> list[float]:
    """Return a score of a method on a set, one number per split and seed; refuse a run that occurs twice.

    NaN stays among the numbers, so that failed runs are visible, unless all are NaN.
    """
    results: dict[tuple[int, int], float | None] = {}
    for run in runs:
        if (run.dataset, run.method) != (dataset, method):
            continue
        if (run.split, run.seed) in results:
            raise BayesNormError(
                f"rows: {method} on {dataset}, split {run.split}, seed {run.seed} occurs twice. Pass each run once."
            )
        results[run.split, run.seed] = run.scores.get(score)
    values = [value for _, value in sorted(results.items()) if value is not None]
    return [] if all(map(math.isnan, values)) else values


def _small_batches(path: Path, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with batches of 8 and 16 from the file next to `path`, as rows of tables 8 and 9 only.

    They come from a preset of their own, with `PASSES` samples. No setting of it was compared with the larger batches,
    so none counts as chosen.
    """
    small = path.with_name(SMALL_BATCHES)
    if path.name != ROWS.name or not small.is_file():
        return []
    with small.open(encoding="utf-8", newline="") as file:
        return [
            {**row, "preset": rows[0].get("preset"), "passes": PASSES, "chosen": 0}
            for row in csv.DictReader(file)
            if row["method"] == "MCBN"
        ]


def split_means(runs: Iterable[Run], dataset: str, method: str, score: str) -> list[float]:
    """Return a score of a method on a set, one mean per split: its seeds share rows and settings."""
    by_split: dict[int, list[float]] = {}
    for run in runs:
        if (run.dataset, run.method) == (dataset, method) and score in run.scores:
            by_split.setdefault(run.split, []).append(run.scores[score])
    return [statistics.fmean(values) for _, values in sorted(by_split.items())]


def _stored_rows(store: Store, experiment: str | None) -> list[dict[str, Any]]:
    # The benchmark stores the times of runs with their results.
    names = [name for name in store.experiments() if not (name.startswith(EXPERIMENT) and name.endswith(RUNS))]
    name = names[0] if experiment is None and len(names) == 1 else experiment
    if name not in names:
        raise BayesNormError(
            f"experiment must be one of {', '.join(map(repr, names)) or 'none'} in {store.path}, got {name!r}."
        )
    if str(name).startswith(EXPERIMENT):
        return benchmark_rows(store, str(name).removeprefix(EXPERIMENT))
    return store.rows(str(name))


def _run(row: Mapping[str, Any]) -> Run:
    """Return a row as a typed run, or refuse it if it lacks required columns."""
    missing = [name for name in ("dataset", "method", "split", "seed", "chosen") if row.get(name) in (None, "")]
    if missing:
        raise BayesNormError(
            f"rows: one has no {', '.join(missing)}, only {', '.join(row)}. Use rows that `{COMMAND}` writes."
        )
    chosen, passes = _number(row, "chosen"), _number(row, "passes")
    results = {name: _number(row, name) for name in SCORES}
    return Run(
        dataset=str(row["dataset"]),
        method=str(row["method"]),
        setting=_number(row, "setting") if row.get("family") in BY_NUMBER else None,
        split=int(_number(row, "split") or 0),
        seed=int(_number(row, "seed") or 0),
        chosen=chosen == 1,
        passes=None if passes is None else int(passes),
        cv_crps=_number(row, "cv_crps"),
        scores={name: value for name, value in results.items() if value is not None},
    )


def _number(row: Mapping[str, Any], name: str) -> float | None:
    """Return a number of a row, or None if it has none."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if value in ("True", "False"):
        return float(value == "True")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise BayesNormError(f"rows: {name} must be a number or empty, got {value!r}.") from None


def _flat(head: Mapping[str, Any]) -> Iterator[str]:
    """Yield names and values of a header; lists and tables of other than plain values are left out."""
    for name, value in head.items():
        if isinstance(value, Mapping):
            yield f"{name.replace('_', ' ')} ({', '.join(_flat(value))})"
        elif isinstance(value, bool | int | float | str | None):
            yield f"{name.replace('_', ' ')} {_shown(value)}"
        elif isinstance(value, list) and value and all(isinstance(entry, int | float | str) for entry in value):
            yield f"{name.replace('_', ' ')} {' and '.join(map(_shown, value))}"


def _shown(value: Any) -> str:
    if type(value) is int:
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
