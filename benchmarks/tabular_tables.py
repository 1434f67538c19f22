"""Write results of `tabular` and `tabular_classes` as Markdown tables: one line per model, one column per set."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.markdown import table
from experiments.means import mean_and_error

Row = dict[str, Any]


@dataclass(frozen=True)
class Score:
    """A score of the results.

    Args:
        key: Its name in the results file.
        title: Its name in tables.
        best: Whether the lowest value is the best and is marked.
        digits: Decimal places; None for three significant digits and at most four decimal places.
    """

    key: str
    title: str
    best: bool = False
    digits: int | None = None


def one_core(row: Row) -> Row:
    """Return a row with CPU times in place of wall-clock times, if it has them: other programs do not change these."""
    return row | {f"{name}_s": row.get(f"{name}_cpu_s", row.get(f"{name}_s")) for name in ("fit", "predict")}


def score_table(rows: Sequence[Row], sets: Sequence[str], models: Sequence[str], score: Score) -> str:
    """Return one score of all models on all sets, mean ± standard error over splits.

    A model with fewer splits than the others has their number in brackets. It is never marked as the best, and if its
    mean is the lowest, no model is.
    """
    columns = []
    for name in sets:
        results = {model: _values(rows, name, model, score.key) for model in models}
        most, means = _complete(results)
        least, best = min(means.values(), default=math.nan), _best(results, means)
        digits = score.digits
        if digits is None:
            digits = min(4, max(0, 2 - math.floor(math.log10(least)))) if least > 0 else 3
        columns.append([])
        for model, values in results.items():
            cell = mean_and_error(values, digits) if values else "–"
            if score.best and model in best:
                cell = f"**{cell}**"
            columns[-1].append(f"{cell} ({len(values)})" if 0 < len(values) < most else cell)
    lines = [[model, *cells] for model, *cells in zip(models, *columns, strict=True)]
    return table([score.title, *sets], [line for line in lines if set(line[1:]) != {"–"}])


def tally(rows: Sequence[Row], sets: Sequence[str], models: Sequence[str], score: Score, ratios: bool) -> str:
    """Return for each model the number of sets with the best score, and the mean ratio or difference to the best.

    Only models with all splits of a set are compared.
    """
    above: dict[str, list[float]] = {model: [] for model in models}
    wins: Counter[str] = Counter()
    for name in sets:
        results = {model: _values(rows, name, model, score.key) for model in models}
        _, means = _complete(results)
        wins.update(_best(results, means))
        least = min(means.values(), default=math.nan)
        for model, mean in means.items():
            above[model].append(mean / least if ratios else mean - least)
    average = statistics.geometric_mean if ratios else statistics.fmean
    title = f"mean ratio to the best {score.title}" if ratios else f"mean difference to the best {score.title}"
    lines = [[model, len(those), wins[model], f"{average(those):.3f}"] for model, those in above.items() if those]
    return table(["model", "sets", f"sets with the best {score.title}", title], lines)


def left_out(rows: Sequence[Row]) -> str:
    """Return what was not measured, and why, as text."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "left out" in row:
            sets = reasons.setdefault((row["model"], row["left out"].split(" (")[0]), [])
            sets += [row["set"]] if row["set"] not in sets else []
    return "; ".join(f"{model} on {', '.join(sets)} ({reason})" for (model, reason), sets in reasons.items())


def all_tables(
    rows: Sequence[Row], sets: Sequence[str], models: Sequence[str], scores: Sequence[Score], *, ratios: bool = True
) -> list[str]:
    """Return one table per score for the sets and models that have rows, and what was left out.

    Args:
        rows: The rows of a results file.
        sets: The sets in order.
        models: The models in order.
        scores: The scores to show; the first one compares models over all sets.
        ratios: Whether models are compared by ratios to the best score, or by differences.
    """
    rows = [one_core(row) for row in rows]
    measured = [row for row in rows if "left out" not in row]
    there = [name for name in sets if any(row["set"] == name for row in measured)]
    results = [score_table(measured, there, models, score) for score in scores]
    results.append(tally(measured, there, models, scores[0], ratios))
    missing = left_out(rows)
    return [*results, *([f"Left out: {missing}."] if missing else [])]


def _complete(result: dict[str, list[float]]) -> tuple[int, dict[str, float]]:
    """Return the largest number of splits of a model, and the means of all models with that number."""
    most = max((len(values) for values in result.values()), default=0)
    return most, {model: statistics.fmean(values) for model, values in result.items() if values and len(values) == most}


def _best(result: dict[str, list[float]], means: dict[str, float]) -> list[str]:
    """Return the models with the lowest mean, or none if a model with fewer splits has a lower one."""
    least = min((statistics.fmean(values) for values in result.values() if values), default=math.nan)
    return [model for model, mean in means.items() if mean == least]


def _values(rows: Sequence[Row], name: str, model: str, key: str) -> list[float]:
    return [row[key] for row in rows if (row["set"], row["model"]) == (name, model) and key in row]
