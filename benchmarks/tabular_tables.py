"""Results of `tabular` and `tabular_classes` as Markdown: a line per model, a column per set, errors over splits."""

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
        key: What it is called in the results.
        title: What it is called in tables.
        best: Whether the least is the best, and marked.
        digits: Digits after the point; None for three that count, after the point at most four.
    """

    key: str
    title: str
    best: bool = False
    digits: int | None = None


def one_core(row: Row) -> Row:
    """Return a row whose times are the processor's, where those were taken: other programs do not count in them."""
    return row | {f"{name}_s": row.get(f"{name}_cpu_s", row.get(f"{name}_s")) for name in ("fit", "predict")}


def score_table(rows: Sequence[Row], sets: Sequence[str], models: Sequence[str], score: Score) -> str:
    """Return one score of all models on all sets, mean ± standard error over splits.

    A model with fewer splits than others of its set has their number in brackets; it is not the best, and no other is
    where its mean is lower.
    """
    columns = []
    for name in sets:
        found = {model: _values(rows, name, model, score.key) for model in models}
        most, means = _complete(found)
        least, best = min(means.values(), default=math.nan), _best(found, means)
        digits = score.digits
        if digits is None:
            digits = min(4, max(0, 2 - math.floor(math.log10(least)))) if least > 0 else 3
        columns.append([])
        for model, values in found.items():
            cell = mean_and_error(values, digits) if values else "–"
            if score.best and model in best:
                cell = f"**{cell}**"
            columns[-1].append(f"{cell} ({len(values)})" if 0 < len(values) < most else cell)
    lines = [[model, *cells] for model, *cells in zip(models, *columns, strict=True)]
    return table([score.title, *sets], [line for line in lines if set(line[1:]) != {"–"}])


def tally(rows: Sequence[Row], sets: Sequence[str], models: Sequence[str], score: Score, ratios: bool) -> str:
    """Return, per model, on how many sets it has the best score, and its mean ratio (or difference) to the best.

    Only models with all splits of a set are compared on it.
    """
    above: dict[str, list[float]] = {model: [] for model in models}
    wins: Counter[str] = Counter()
    for name in sets:
        found = {model: _values(rows, name, model, score.key) for model in models}
        _, means = _complete(found)
        wins.update(_best(found, means))
        least = min(means.values(), default=math.nan)
        for model, mean in means.items():
            above[model].append(mean / least if ratios else mean - least)
    average = statistics.geometric_mean if ratios else statistics.fmean
    title = f"mean ratio to the best {score.title}" if ratios else f"mean difference to the best {score.title}"
    lines = [[model, len(those), wins[model], f"{average(those):.3f}"] for model, those in above.items() if those]
    return table(["model", "sets", f"sets with the best {score.title}", title], lines)


def left_out(rows: Sequence[Row]) -> str:
    """Return in words what was not measured, and why."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "left out" in row:
            sets = reasons.setdefault((row["model"], row["left out"].split(" (")[0]), [])
            sets += [row["set"]] if row["set"] not in sets else []
    return "; ".join(f"{model} on {', '.join(sets)} ({reason})" for (model, reason), sets in reasons.items())


def all_tables(
    rows: Sequence[Row], sets: Sequence[str], models: Sequence[str], scores: Sequence[Score], *, ratios: bool = True
) -> list[str]:
    """Return a table per score, of the sets and models that there are rows of, and what was left out.

    Args:
        rows: Those of a results file.
        sets: Their order.
        models: Their order.
        scores: What is shown; models are compared over all sets by the first.
        ratios: Whether that is done by ratios to the best model's score, or else by differences.
    """
    rows = [one_core(row) for row in rows]
    measured = [row for row in rows if "left out" not in row]
    there = [name for name in sets if any(row["set"] == name for row in measured)]
    found = [score_table(measured, there, models, score) for score in scores]
    found.append(tally(measured, there, models, scores[0], ratios))
    missing = left_out(rows)
    return [*found, *([f"Left out: {missing}."] if missing else [])]


def _complete(found: dict[str, list[float]]) -> tuple[int, dict[str, float]]:
    """Return the most splits that a model has, and the means of models that have so many."""
    most = max((len(values) for values in found.values()), default=0)
    return most, {model: statistics.fmean(values) for model, values in found.items() if values and len(values) == most}


def _best(found: dict[str, list[float]], means: dict[str, float]) -> list[str]:
    """Return the models with the least mean, or none where a model with fewer splits lies below them."""
    least = min((statistics.fmean(values) for values in found.values() if values), default=math.nan)
    return [model for model, mean in means.items() if mean == least]


def _values(rows: Sequence[Row], name: str, model: str, key: str) -> list[float]:
    return [row[key] for row in rows if (row["set"], row["model"]) == (name, model) and key in row]
