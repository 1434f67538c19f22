"""Compute the cells of the tables: our mean over runs, the paper's number, and which is better."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayesnorm.errors import BayesNormError

from ..data import UCI_SETS
from ..paper_facts import Fact, fact, paper_facts
from ..significance import significance
from .rows import PASSES, Run, main_runs, runs_of, scores

PAPER = "teye2018"
TABLES: dict[int, str] = {
    1: "normalised CRPS and PLL with stars: a summary of tables 4 and 5",
    4: "normalised CRPS (0: constant uncertainty, 100: the best possible) with a t-test against 0",
    5: "normalised PLL (0: constant uncertainty, 100: the best possible) with a t-test against 0",
    6: "raw CRPS and PLL, in the targets' own units",
    7: "RMSE, in the targets' own units",
    8: "normalised CRPS of MCBN over training batch sizes",
    9: "normalised PLL of MCBN over training batch sizes",
    10: "normalised CRPS of MCBN over numbers of samples",
    11: "normalised PLL of MCBN over numbers of samples",
}
METRICS: dict[int, tuple[str, ...]] = {
    1: ("normalised_crps", "normalised_pll"),
    4: ("normalised_crps",),
    5: ("normalised_pll", "normalised_pll_own"),
    6: ("crps", "pll", "pll_own"),
    7: ("rmse",),
    8: ("normalised_crps",),
    9: ("normalised_pll",),
    10: ("normalised_crps",),
    11: ("normalised_pll",),
}
PAPER_METHODS = ("MCBN", "MCDropout", "MNF")
RMSE_METHODS = ("MCBN", "BN", "MCDropout", "DO", "MNF")
PAPER_NAMES = {"MCDropout": "MCDO"}
POINT_METHODS = ("BN", "DO")
CONSTANT_METHODS = ("CUBN", "CUDO")
"""The zero of the normalised scores, with the mean prediction of MCBN and of MC dropout."""

PAPER_RUNS = 15
"""Runs for each number of tables 8 to 11: 3 splits with 5 seeds."""
FIXED_SIZE = 128
"""Batch size of tables 10 and 11."""


@dataclass(frozen=True)
class Cell:
    """Our result and the paper's, either of which may be missing.

    Args:
        dataset: Name of the set.
        method: Our name; MCDropout is the paper's MCDO.
        metric: Our name of the score; with "_own" at its end, our precision was chosen by PLL and the paper's by CRPS.
        ours: Mean over runs.
        our_error: Standard error of that; None with fewer than two runs.
        our_p: P-value of a two-sided t-test against 0, for normalised scores.
        runs: Number of runs.
        theirs: The paper's mean.
        their_error: Its standard error; None if it is not printed.
        their_p: Its p-value.
        verdict: Verdict on ours: "better", "same" (within two standard errors of the difference), "worse", or "-".
        setting: The setting of the cell, in tables 8 to 11: "M = 32", "T = 50".
    """

    dataset: str
    method: str
    metric: str
    ours: float | None
    our_error: float | None
    our_p: float | None
    runs: int
    theirs: float | None
    their_error: float | None
    their_p: float | None
    verdict: str
    setting: str = ""

    @property
    def within_two_errors(self) -> bool:
        """Return whether ours is at least as good as the paper's mean with a tolerance of two standard errors."""
        if self.ours is None or self.theirs is None or self.their_error is None:
            return False
        return gain(self.metric, self.ours, self.theirs) >= -2 * self.their_error


def compare(table: int, rows: Iterable[Mapping[str, Any]]) -> list[Cell]:
    """Return all cells of a table: the paper's methods on all sets, then our other methods.

    Tables 1 and 4 to 7 use the rows that cross-validation chose. Tables 8 and 9 use MCBN at every batch size: with
    `PASSES` samples if the column `passes` has such rows, otherwise with the benchmark's own number. Tables 10 and 11
    use MCBN at a batch size of 128 and need that column. In tables 8 to 11 the paper prints no standard errors, so its
    runs are assumed to vary as ours do.

    Args:
        table: A number from `TABLES`.
        rows: Results, one row per run and method; see `python -m experiments uci`.
    """
    if table not in TABLES:
        raise BayesNormError(f"table must be one of {', '.join(map(str, TABLES))}, got {table!r}.")
    runs = runs_of(rows)
    if table >= 8:
        return _sensitivity(table, [run for run in runs if run.method == "MCBN"])
    chosen = [run for run in main_runs(runs) if run.chosen]
    by_pll = any(name.endswith("_own") for run in chosen for name in run.scores)
    methods = RMSE_METHODS if table == 7 else PAPER_METHODS
    without = {6: (), 7: CONSTANT_METHODS}.get(table, POINT_METHODS + CONSTANT_METHODS)
    others = [name for name in dict.fromkeys(run.method for run in chosen) if name not in (*methods, *without)]
    results = []
    for method in (*methods, *others):
        of_method = [run for run in chosen if run.method == method]
        for metric in METRICS[table]:
            if metric.endswith("_own") and not by_pll:
                continue
            cells = []
            for dataset in UCI_SETS:
                values = scores(of_method, dataset, method, metric)
                cells.append(make_cell(dataset, method, metric, values, paper_fact(table, dataset, method, metric)))
            if method in methods or any(cell.runs for cell in cells):
                results += cells
    return results


def paper_fact(table: int, dataset: str, method: str, metric: str) -> Fact | None:
    """Return the paper's cell for our names of method and metric, or None; table 1 uses those of tables 4 and 5."""
    printed = metric.removesuffix("_own")
    if table == 1:
        table = 4 if printed == "normalised_crps" else 5
    name = f"{printed}_percent" if printed.startswith("normalised") else printed
    return fact(PAPER, table, dataset, PAPER_NAMES.get(method, method), name)


def make_cell(
    dataset: str, method: str, metric: str, values: Sequence[float], theirs: Fact | None, setting: str = ""
) -> Cell:
    """Summarise our runs and compare them with a number of the paper, of any method.

    Args:
        dataset: Name of the set.
        method: Our name.
        metric: Our name of the score.
        values: Our scores, one per run.
        theirs: The paper's cell, if it has one.
        setting: The setting of the cell; see `Cell`.
    """
    mean, error, p_value = _summary(values, test=metric.startswith("normalised"))
    verdict = "-"
    if mean is not None and error is not None and theirs is not None:
        their_error = theirs.standard_error
        if their_error is None:
            their_error = error * math.sqrt(len(values) / PAPER_RUNS)
        verdict = _verdict(gain(metric, mean, theirs.value), math.hypot(error, their_error), decimals(theirs.table))
    return Cell(
        dataset=dataset,
        method=method,
        metric=metric,
        ours=mean,
        our_error=error,
        our_p=p_value,
        runs=len(values),
        theirs=None if theirs is None else theirs.value,
        their_error=None if theirs is None else theirs.standard_error,
        their_p=None if theirs is None else theirs.p_value,
        verdict=verdict,
        setting=setting,
    )


def gain(metric: str, ours: float, theirs: float) -> float:
    """Return how much better ours is."""
    return theirs - ours if metric in ("crps", "rmse") else ours - theirs


def decimals(table: int) -> int:
    """Return the number of decimals that the paper prints."""
    return 1 if table >= 8 else 2


def _verdict(better_by: float, error: float, digits: int) -> str:
    if not math.isfinite(better_by):
        return "worse"  # some run failed
    if abs(better_by) <= 2 * error + 0.5 * 10**-digits:
        return "same"
    return "better" if better_by > 0 else "worse"


def _summary(values: Sequence[float], test: bool) -> tuple[float | None, float | None, float | None]:
    """Return mean, standard error and, if requested, the p-value of a t-test against 0."""
    if not values:
        return None, None, None
    if not all(map(math.isfinite, values)):
        return math.nan, math.nan, math.nan if test else None
    if len(values) < 2:
        return statistics.fmean(values), None, None
    result = significance(values)
    return result.mean, result.standard_error, result.p_value if test else None


def _sensitivity(table: int, runs: Sequence[Run]) -> list[Cell]:
    """Return the cells of tables 8 to 11, in the paper's order."""
    (metric,) = METRICS[table]
    over, letter = ("batch_size", "M") if table in (8, 9) else ("passes", "T")
    if table in (8, 9):
        as_theirs = [run for run in runs if run.passes == PASSES]
        told = {(run.dataset, run.setting) for run in as_theirs}
        runs = as_theirs + [run for run in main_runs(runs) if (run.dataset, run.setting) not in told]
    else:
        runs = [run for run in runs if run.setting == FIXED_SIZE]
    facts = paper_facts(PAPER, table)
    levels = sorted({int(one.settings[over]) for one in facts})
    results = []
    for dataset in UCI_SETS:
        for level in levels:
            of_level = [run for run in runs if level == (run.setting if over == "batch_size" else run.passes)]
            theirs = fact(PAPER, table, dataset, "MCBN", f"{metric}_percent", **{over: level})
            values = scores(of_level, dataset, "MCBN", metric)
            results.append(make_cell(dataset, "MCBN", metric, values, theirs, f"{letter} = {level}"))
    return results
