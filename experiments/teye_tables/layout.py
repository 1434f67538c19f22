"""Format tables as text and as Markdown."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..bench import Store
from ..data import UCI_SETS
from ..significance import stars
from .cells import METRICS, PAPER_NAMES, TABLES, Cell, compare, decimals
from .rows import ROWS, header_text, read_rows

WIDTH = 120
NAMES = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "pll": "PLL",
    "normalised_crps": "CRPS %",
    "normalised_pll": "PLL %",
    "pll_own": "PLL†",
    "normalised_pll_own": "PLL† %",
}
OWN = "†: our precision is chosen by PLL; all others, and the paper's, by CRPS."
STARS = (
    "Two-sided t-test against 0 over the runs: * p <= 0.05, ** 0.01, *** 0.001, **** 0.0001; a negative mean is worse."
)
VERDICTS = "Verdict on ours: same = within two standard errors of the difference (and half of the paper's last digit)."
ASSUMED = "The paper prints no standard errors here; its 15 runs are assumed to vary as ours do."
OVER_SIZES = (
    "Ours: weight decay and epochs are chosen separately for every M, and T is the benchmark's own where there are "
    "no rows with T = 100; the paper kept them fixed, with T = 100."
)
NOTES: dict[int, tuple[str, ...]] = {
    1: (
        "The paper's numbers are from its tables 4 and 5. Its table 1 differs: ** for MCBN's PLL on power; for MNF, "
        "CRPS 0.53 (kin8nm) and 0.94 (wine) and PLL -0.87 (power).",
    ),
    8: (OVER_SIZES,),
    9: (OVER_SIZES,),
    10: ("Ours are rows with M = 128 and a column `passes`, if there are any.",),
    11: ("Ours are rows with M = 128 and a column `passes`, if there are any.",),
}


@dataclass(frozen=True)
class Section:
    """A part of a table.

    Args:
        title: Title above it, or nothing.
        columns: Header of each column; the first is for names.
        rows: Rows with as many texts as there are columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> list[str]:
        """Return aligned lines; numbers are aligned with and without stars."""
        widths = [max(len(line[i]) for line in (self.columns, *self.rows)) for i in range(len(self.columns))]
        lines = [self.title] if self.title else []
        for line in (self.columns, *self.rows):
            rest = [entry.rjust(width) for entry, width in zip(line[1:], widths[1:], strict=True)]
            lines.append("  ".join(["  " + line[0].ljust(widths[0]), *rest]).rstrip())
        return lines

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table."""
        lines = [f"**{self.title}**", ""] if self.title else []
        rule = ["---", *["---:"] * (len(self.columns) - 1)]
        rows = [[entry.strip().replace("*", r"\*") for entry in line] for line in (self.columns, *self.rows)]
        return [*lines, *(f"| {' | '.join(line)} |" for line in (rows[0], rule, *rows[1:])), ""]


def render(
    table: int,
    rows_path: str | os.PathLike[str] | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    experiment: str | None = None,
) -> str:
    """Return a table as text, at most 120 wide: our and the paper's numbers, a verdict for each cell, and counts.

    Args:
        table: A number from `TABLES`.
        rows_path: CSV file of our results; by default results/uci_paper.csv. A JSON object in a file of the same name
            with .json is printed under the title.
        store: A `experiments.bench.Store`, or its path, to read them from instead.
        experiment: Name of the run in the store, if that has several.
    """
    rows = read_rows(rows_path, store, experiment)
    head = "" if store is not None else header_text(rows_path or ROWS)
    cells = compare(table, rows)
    lines = wrapped(f"Table {table} of Teye et al. 2018: {TABLES[table]}.")
    lines += wrapped(_origin(rows) + (f"; {head}." if head else "."))
    for section in sections(table, cells):
        lines += ["", *section.text()]
    lines.append("")
    for note in (*counts(cells), *notes(table, cells)):
        lines += wrapped(note)
    return "\n".join(lines)


def markdown(table: int, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table as Markdown, with its counts and notes.

    Args:
        table: A number from `TABLES`.
        rows: Results, one row per run and method; see `compare`.
    """
    rows = list(rows)
    cells = compare(table, rows)
    lines = [f"Table {table} of Teye et al. 2018: {TABLES[table]}. {_origin(rows)}.", ""]
    for section in sections(table, cells):
        lines += section.markdown()
    said = [note.replace("*", r"\*") for note in (*counts(cells), *notes(table, cells))]
    return "\n".join([*lines, *(f"- {note}" for note in said)]) + "\n"


def sections(table: int, cells: Sequence[Cell]) -> list[Section]:
    """Return the parts of a table: one for each of the paper's methods, and one for each score of the others."""
    if table >= 8:
        return [_over_settings(table, cells)]
    methods = list(dict.fromkeys(cell.method for cell in cells if cell.theirs is not None))
    results = [_side_by_side(table, method, [cell for cell in cells if cell.method == method]) for method in methods]
    for metric in METRICS[table]:
        others = [cell for cell in cells if cell.metric == metric and cell.method not in methods]
        if others:
            results += _ours_alone(table, metric, others)
    return results


def counts(cells: Sequence[Cell]) -> list[str]:
    """Return how often ours is better, the same, worse, and how often within two of the paper's standard errors."""
    result = []
    kinds = dict.fromkeys((cell.method, cell.metric) for cell in cells if cell.theirs is not None)
    for method, metric in kinds:
        those = [cell for cell in cells if (cell.method, cell.metric) == (method, metric) and cell.theirs is not None]
        judged = [cell for cell in those if cell.verdict != "-"]
        if not judged:
            result.append(f"{method}, {NAMES[metric]}: no results of ours.")
            continue
        tally = ", ".join(f"{word} {sum(c.verdict == word for c in judged)}" for word in ("better", "same", "worse"))
        missing = f", missing {len(those) - len(judged)}" if len(judged) < len(those) else ""
        line = f"{method}, {NAMES[metric]}: {tally}{missing} of {len(those)} cells"
        if judged[0].their_error is not None:
            side = "below the paper's plus" if metric in ("crps", "rmse") else "above the paper's minus"
            line += f"; at or {side} two of its standard errors on {sum(c.within_two_errors for c in those)}"
        result.append(line + ".")
    return result


def notes(table: int, cells: Sequence[Cell]) -> list[str]:
    """Return the notes that are needed to read a table."""
    results = [VERDICTS]
    if table in (1, 4, 5):
        results.append(STARS)
    if any(cell.metric.endswith("_own") for cell in cells):
        results.append(OWN)
    return [*results, *([ASSUMED] if table >= 8 else []), *NOTES.get(table, ())]


def ours_shown(cell: Cell, error: bool = True) -> str:
    """Return our number as text: mean ± standard error and, for normalised scores, stars."""
    if cell.ours is None:
        return f"-{_room(cell.metric)}"
    digits = 2 if cell.metric.startswith("normalised") else _digits(cell)
    return _number(cell.ours, cell.our_error if error else None, digits) + _mark(cell, cell.our_p)


def theirs_shown(cell: Cell, error: bool = True) -> str:
    """Return the paper's number as printed; stars are those of its p-value."""
    if cell.theirs is None:
        return f"-{_room(cell.metric)}"
    return _number(cell.theirs, cell.their_error if error else None, decimals(4)) + _mark(cell, cell.their_p)


def _digits(cell: Cell) -> int:
    """Return the number of digits: one more than in the paper, two more for small CRPS and RMSE, fewer for large."""
    size = abs(cell.ours or 0.0)
    if size < 0.1 and cell.metric in ("crps", "rmse"):
        return 4
    return next((digits for bound, digits in ((10, 3), (100, 2), (1000, 1)) if size < bound), 0)


def _number(value: float, error: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def _mark(cell: Cell, p_value: float | None) -> str:
    mark = "" if p_value is None or math.isnan(p_value) else stars(p_value)
    return f" {mark}".ljust(len(_room(cell.metric))) if _room(cell.metric) else ""


def _side_by_side(table: int, method: str, cells: Sequence[Cell]) -> Section:
    """Lay out a method of the paper: one row per set; for each score our number, the paper's and the verdict."""
    metrics = [metric for metric in METRICS[table] if any(cell.metric == metric for cell in cells)]
    columns = ["", *(head for metric in metrics for head in _heads(metric)), "runs"]
    rows = []
    for dataset in UCI_SETS:
        line, runs = [dataset], 0
        for metric in metrics:
            (cell,) = [cell for cell in cells if (cell.dataset, cell.metric) == (dataset, metric)]
            line.append(ours_shown(cell, error=table != 1))
            if not metric.endswith("_own"):
                line.append(theirs_shown(cell, error=table != 1))
            line.append(cell.verdict)
            runs = max(runs, cell.runs)
        rows.append((*line, str(runs)))
    name = PAPER_NAMES.get(method)
    return Section(f"{method} ({name} in the paper)" if name else method, tuple(columns), tuple(rows))


def _heads(metric: str) -> tuple[str, ...]:
    ours, theirs = f"{NAMES[metric]} ours{_room(metric)}", f"paper{_room(metric)}"
    return (ours, "verdict") if metric.endswith("_own") else (ours, theirs, "verdict")


def _room(metric: str) -> str:
    """Return the space for stars, so that numbers are aligned with and without them."""
    return " " * 5 if metric.startswith("normalised") else ""


def _ours_alone(table: int, metric: str, cells: Sequence[Cell]) -> list[Section]:
    """Lay out methods that are not in the paper: one column per set, in two halves to limit the width."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    value = {(cell.method, cell.dataset): ours_shown(cell, error=table != 1) for cell in cells}
    shown = [name for name in UCI_SETS if any(cell.runs for cell in cells if cell.dataset == name)]
    results: list[Section] = []
    for part in (shown[:4], shown[4:]):
        columns = ("", *(name + _room(metric) for name in part))
        rows = tuple((method, *(value[method, name] for name in part)) for method in methods)
        if part:
            results.append(Section("" if results else f"Not in the paper, {NAMES[metric]}", columns, rows))
    return results


def _over_settings(table: int, cells: Sequence[Cell]) -> Section:
    """Lay out tables 8 to 11: one column per setting, and three lines for each set."""
    settings = list(dict.fromkeys(cell.setting for cell in cells))
    at = {(cell.dataset, cell.setting): cell for cell in cells}
    rows = []
    for dataset in UCI_SETS:
        those = [at[dataset, setting] for setting in settings]
        rows.append((f"{dataset:<9}ours", *(_short(cell) for cell in those)))
        theirs = ("-" if cell.theirs is None else _number(cell.theirs, None, decimals(table)) for cell in those)
        rows.append((f"{'':<9}paper", *theirs))
        rows.append((f"{'':<9}", *(cell.verdict for cell in those)))
    return Section("", ("", *settings), tuple(rows))


def _short(cell: Cell) -> str:
    if cell.ours is None:
        return "-"
    return f"{cell.ours:.1f}" + ("" if cell.our_error is None else f"±{cell.our_error:.1f}")


def _origin(rows: Sequence[Mapping[str, Any]]) -> str:
    preset = next((str(row["preset"]) for row in rows if row.get("preset")), "")
    return f"Ours: preset {preset}" if preset else "Ours: no preset named"


def wrapped(text: str) -> list[str]:
    """Return a long line split into lines of at most `WIDTH`."""
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
