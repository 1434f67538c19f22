"""Summarise all tables: which of the paper's claims are reproduced."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..data import UCI_SETS
from ..significance import significance
from .cells import CONSTANT_METHODS, PAPER_METHODS, POINT_METHODS, Cell, compare, make_cell, paper_fact
from .layout import NAMES, ours_shown, theirs_shown, wrapped
from .rows import Run, main_runs, runs_of, scores, split_means

LEVEL = 0.05
CHOSEN_SIZE = "MCBN M' by CRPS"
SIZE_BY_CRPS = "MCBN, M of training by CRPS"
"""MCBN at the training batch size with the lowest cross-validated CRPS; the paper uses that with the lowest RMSE."""
HARD_SETS = ("concrete", "yacht")
"""The sets where the paper's CRPS and PLL disagree about MCBN."""
SMALL_SIZE, USUAL_SIZE = 8, 128
"""Batch sizes that are compared for the claim that small batches do harm."""


def verdicts(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a text that says which of the paper's claims hold on which sets.

    Args:
        rows: Results, one row per run and method; see `compare`.
    """
    rows = list(rows)
    lines = ["MCBN against the paper's MCBN"]
    for table, metric, name in ((6, "crps", "raw CRPS"), (7, "rmse", "RMSE")):
        cells = [cell for cell in compare(table, rows) if (cell.method, cell.metric) == ("MCBN", metric)]
        lines += _at_or_below(f"{name} at or below the paper's plus two standard errors", cells)
    lines += ["", f"Normalised CRPS significantly above 0, constant uncertainty (p <= {LEVEL})"]
    lines += _significant(compare(4, rows) + _size_by_crps(rows))
    lines += ["", "The same with one mean per split, because the networks of a split share rows and settings"]
    lines += _significant_by_split(rows)
    lines += ["", f"{CHOSEN_SIZE} against the paper's MC dropout"]
    lines += _at_or_below("raw CRPS at or below the paper's plus two standard errors", _against_dropout(rows))
    lines += [
        "",
        "PLL where the paper's scores disagree, with our precision chosen by CRPS, as in the paper, and by PLL",
    ]
    lines += _hard_sets(rows)
    lines += ["", f"Small batches do harm: MCBN's score with M = {SMALL_SIZE} is below that with M = {USUAL_SIZE}"]
    lines += [line for table in (8, 9) for line in _small_batches(compare(table, rows))]
    return "\n".join(part for line in lines for part in wrapped(line) or [""])


def _at_or_below(claim: str, cells: Sequence[Cell]) -> list[str]:
    """Return on which sets a claim holds: by the paper's standard errors, and by looser criteria."""
    result = [cell for cell in cells if cell.ours is not None]
    holds = [cell for cell in result if cell.within_two_errors]
    looser = [cell for cell in result if cell not in holds and cell.verdict in ("same", "better")]
    fails = [cell for cell in result if cell not in holds and cell not in looser]
    lines = [f"- {claim}: {len(holds)} of {len(UCI_SETS)} sets{_names(holds)}"]
    if looser:
        lines.append(f"  only within our own standard error or the paper's rounding: {_pairs(looser)}")
    if fails:
        lines.append(f"  not: {_pairs(fails)}")
    if missing := [cell.dataset for cell in cells if cell.ours is None]:
        lines.append(f"  no results: {', '.join(missing)}")
    return lines


def _significant(cells: Sequence[Cell]) -> list[str]:
    """Return for each method on how many sets its score is significantly above 0."""
    lines = []
    for method in dict.fromkeys(cell.method for cell in cells):
        those = [cell for cell in cells if cell.method == method]
        line = f"- {method}: {_signs([(cell.dataset, cell.ours, cell.our_p) for cell in those])}"
        if method in PAPER_METHODS:
            line += f"; the paper's {_signs([(cell.dataset, cell.theirs, cell.their_p) for cell in those])}"
        lines.append(line)
    return lines


def _significant_by_split(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return for each method on how many sets its score is significantly above 0, by a t-test over splits."""
    runs = main_runs(runs_of(rows))
    sized = [replace(run, method=SIZE_BY_CRPS) for run in _runs_of_best_size(runs)]
    chosen = [run for run in runs if run.chosen] + sized
    lines = []
    for method in dict.fromkeys(run.method for run in chosen if "normalised_crps" in run.scores):
        tested: list[tuple[str, float | None, float | None]] = []
        for dataset in UCI_SETS:
            values = split_means(chosen, dataset, method, "normalised_crps")
            if len(values) > 1 and all(map(math.isfinite, values)):
                result = significance(values)
                tested.append((dataset, result.mean, result.p_value))
        if tested and method not in (*POINT_METHODS, *CONSTANT_METHODS):
            lines.append(f"- {method}: {_signs(tested)}")
    return lines or ["- no results"]


def _signs(result: Sequence[tuple[str, float | None, float | None]]) -> str:
    """Return on how many sets a mean is significantly above 0, and where it is not."""
    tested = [(name, mean, p) for name, mean, p in result if mean is not None and p is not None]
    if not tested:
        return "no results"
    above = [name for name, mean, p in tested if mean > 0 and p <= LEVEL]
    below = [name for name, mean, p in tested if mean < 0 and p <= LEVEL]
    unclear = [name for name, _, _ in tested if name not in (*above, *below)]
    text = f"{len(above)} of {len(tested)}"
    text += f", unclear on {', '.join(unclear)}" if unclear else ""
    return text + (f", below 0 on {', '.join(below)}" if below else "")


def _size_by_crps(rows: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Return cells of MCBN with M chosen by CRPS, and with M' chosen by CRPS; empty if rows do not have them."""
    chosen = _runs_of_best_size(main_runs(runs_of(rows)))
    values = {name: scores(chosen, name, "MCBN", "normalised_crps") for name in UCI_SETS if chosen}
    return [make_cell(name, SIZE_BY_CRPS, "normalised_crps", result, None) for name, result in values.items()]


def _runs_of_best_size(runs: Sequence[Run]) -> list[Run]:
    """Return the runs of MCBN at the training batch size with the lowest cross-validated CRPS of their split."""
    candidates = [run for run in runs if run.method == "MCBN" and run.cv_crps is not None]
    best: dict[tuple[str, int], tuple[float, float]] = {}
    for run in candidates:
        place = (run.dataset, run.split)
        best[place] = min(best.get(place, (math.inf, math.inf)), _rank(run))
    return [run for run in candidates if _rank(run) == best[run.dataset, run.split]]


def _rank(run: Run) -> tuple[float, float]:
    crps = math.nan if run.cv_crps is None else run.cv_crps
    return math.inf if math.isnan(crps) else crps, run.setting or 0.0


def _against_dropout(rows: Sequence[Mapping[str, Any]]) -> list[Cell]:
    """Compare the CRPS of MCBN with chosen M' with that of the paper's MC dropout."""
    runs = [run for run in main_runs(runs_of(rows)) if run.chosen]
    return [
        make_cell(
            name, CHOSEN_SIZE, "crps", scores(runs, name, CHOSEN_SIZE, "crps"), paper_fact(6, name, "MCDropout", "crps")
        )
        for name in UCI_SETS
    ]


def _hard_sets(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return PLL on `HARD_SETS`, with the precision chosen by CRPS and by PLL."""
    cells = {(cell.dataset, cell.method, cell.metric): cell for table in (5, 6) for cell in compare(table, rows)}
    lines = []
    for dataset in HARD_SETS:
        for method in ("MCBN", CHOSEN_SIZE, "MCDropout"):
            for metric, name in (("pll", "PLL"), ("normalised_pll", "normalised PLL %")):
                by_crps, by_pll = (cells.get((dataset, method, key)) for key in (metric, f"{metric}_own"))
                if by_crps is None or not by_crps.runs:
                    continue
                line = f"- {dataset}, {method}, {name}: {_shown(by_crps)} by CRPS"
                if by_pll is not None and by_pll.runs:
                    line += f", {_shown(by_pll)} by PLL"
                lines.append(line + (f"; the paper {theirs_shown(by_crps).rstrip()}" if by_crps.theirs else ""))
    return lines or ["- no results"]


def _small_batches(cells: Sequence[Cell]) -> list[str]:
    """Return on which sets a small batch size scores worse, by more than two standard errors of the difference."""
    at = {(cell.dataset, cell.setting): cell for cell in cells}
    worse: list[str] = []
    others: list[str] = []
    theirs: list[str] = []
    missing: list[str] = []
    for dataset in UCI_SETS:
        small, usual = at[dataset, f"M = {SMALL_SIZE}"], at[dataset, f"M = {USUAL_SIZE}"]
        if small.theirs is not None and usual.theirs is not None and small.theirs < usual.theirs:
            theirs.append(dataset)
        if small.ours is None or usual.ours is None:
            missing.append(dataset)
            continue
        error = math.hypot(small.our_error or 0.0, usual.our_error or 0.0)
        (worse if usual.ours - small.ours > 2 * error else others).append(
            f"{dataset} ({small.ours:.1f}; {usual.ours:.1f})"
        )
    line = f"- {NAMES[cells[0].metric]}: {len(worse)} of {len(UCI_SETS)} sets"
    line += f", {', '.join(worse)}" if worse else ""
    line += f"; not on {', '.join(others)}" if others else ""
    line += f"; no results for {', '.join(missing)}" if missing else ""
    return [f"{line}; the paper's means: {len(theirs)}, {', '.join(theirs)}"]


def _shown(cell: Cell) -> str:
    verdict = "" if cell.verdict == "-" else f" ({cell.verdict})"
    return f"{ours_shown(cell).rstrip()}{verdict}"


def _names(cells: Sequence[Cell]) -> str:
    return f" ({', '.join(cell.dataset for cell in cells)})" if cells else ""


def _pairs(cells: Sequence[Cell]) -> str:
    return ", ".join(f"{cell.dataset} ({ours_shown(cell)}; {theirs_shown(cell)})" for cell in cells)
