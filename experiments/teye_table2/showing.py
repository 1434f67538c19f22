"""Table 2 as text and as cells of Markdown tables, and its picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bayesnorm.plots import style

from ..panels import panels, set_figure_title
from ..paper_facts import paper_facts
from .methods import MCBN, PUBLISHED, SOFTMAX, TEMPERATURE, UNAUGMENTED
from .verdicts import HOLDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
"""A score, cell or claim of the results file."""

COLOURS = (style.VERMILION, style.BLUE, style.GREEN, style.PURPLE, style.SKY, style.ORANGE, style.BLACK)
HEADS = {
    "cells": ("samples", "paper", "ours", "spread", "gain over softmax, paper", "gain over softmax, ours", "verdict"),
    "claims": ("claim or question", "paper", "ours", "verdict"),
    "by_seed": ("samples", "paper", "ours, mean ± SD", "gain over softmax, paper", "gain, mean ± SD", "holds"),
    "rows": ("method", "samples", "cost (forward passes)", "NLL", "gain over softmax", "accuracy"),
}


def tables(results: Row) -> dict[str, list[list[str]]]:
    """Return the cells, claims and rows of one network as texts, by kind."""
    cells, plain = (_cells(results.get(kind, ())) for kind in ("cells", "cells_unaugmented"))
    claims = [
        [
            claim["words"],
            "" if claim["theirs"] is None else f"{claim['theirs']:+.2f}",
            _with_error(claim["ours"], claim["standard_error"], "+"),
            claim["verdict"],
        ]
        for claim in results["claims"]
    ]
    rows = [
        [
            row["method"],
            str(row["samples"]),
            f"{row['passes']:.3g}",
            _with_error(row["nll"], row["standard_error"]),
            "" if row["method"] == SOFTMAX else _with_error(row["gain"], row["gain_error"], "+"),
            f"{row['accuracy']:.4f}",
        ]
        for row in largest(results["rows"])
    ]
    by_seed = _cells_by_seed([one["cells"] for one in results.get("by_seed", ())])
    return {"cells": cells, "claims": claims, "cells_unaugmented": plain, "by_seed": by_seed, "rows": rows}


def _cells(cells: Sequence[Row]) -> list[list[str]]:
    return [
        [
            "softmax" if cell["samples"] is None else str(cell["samples"]),
            f"{cell['theirs']:.2f}",
            _with_error(cell["ours"], cell["standard_error"]),
            "" if cell["spread"] is None else f"{cell['spread']:.4f}",
            "" if cell["their_gain"] is None else f"{cell['their_gain']:+.2f}",
            "" if cell["gain"] is None else _with_error(cell["gain"], cell["gain_error"], "+"),
            cell["verdict"],
        ]
        for cell in cells
    ]


def _cells_by_seed(tables_of_seeds: Sequence[Sequence[Row]]) -> list[list[str]]:
    """Return the table's cells as mean and standard deviation over networks; none for fewer than two networks."""
    if len(tables_of_seeds) < 2:
        return []
    return [
        [
            *_cells(cells[:1])[0][:2],
            _mean_and_deviation([cell["ours"] for cell in cells]),
            "" if cells[0]["their_gain"] is None else f"{cells[0]['their_gain']:+.2f}",
            "" if cells[0]["gain"] is None else _mean_and_deviation([cell["gain"] for cell in cells], "+"),
            f"{sum(cell['verdict'] == HOLDS for cell in cells)} of {len(cells)}",
        ]
        for cells in zip(*tables_of_seeds, strict=True)
    ]


def _mean_and_deviation(values: Sequence[float], sign: str = "") -> str:
    return _with_error(statistics.mean(values), statistics.stdev(values), sign)


def largest(rows: Sequence[Row]) -> list[Row]:
    """Return the row with the most samples for every method."""
    return list({row["method"]: row for row in rows}.values())  # rows of a method are in order of their samples


def text(results: Row) -> str:
    """Return all tables of one network as text, and below them what was left out."""
    titles = {
        "cells": "Table 2 of Teye et al. 2018: mean log probability (PLL) of MCBN(32), batches as in training",
        "claims": "Claims and open questions (differences of PLL; positive is better)",
        "cells_unaugmented": "The same with batches without augmentation",
        "by_seed": f"Table 2 over {len(results.get('by_seed', ()))} networks that differ in their seed",
        "rows": "Every method with its largest number of samples",
    }
    lines = [f"{results['network']}, {results['images']} test images"]
    for kind, body in tables(results).items():
        if not body:
            continue
        head = HEADS[kind.removesuffix("_unaugmented")]
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines += ["", titles[kind]]
        for cells in (head, *body):
            padded = (cell.ljust(widths[0]) if i == 0 else cell.rjust(widths[i]) for i, cell in enumerate(cells))
            lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, *(f"left out: {line}" for line in results["left_out"])])


def draw(results: Row) -> Axes:
    """Plot our NLL by number of samples beside the paper's, and the NLL of every method against its cost."""
    (axes,) = panels(1, 2)
    _draw_table(axes[0], results)
    _draw_passes(axes[1], results["rows"])
    for ax in axes:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter("{x:g}")
    set_figure_title(axes[0], f"{results['network']}, {results['images']:,} CIFAR-10 test images")
    return axes[0]


def _draw_table(ax: Axes, results: Row) -> None:
    facts = paper_facts("teye2018", 2)
    theirs = [(fact.settings["passes"], -fact.value) for fact in facts if "passes" in fact.settings]
    ax.plot(*zip(*theirs, strict=True), color=style.BLACK, ls="--", marker="s", ms=5, label="paper: MCBN")
    softmax = next(-fact.value for fact in facts if fact.method == "softmax")
    ax.axhline(softmax, color=style.BLACK, ls=":", label="paper: softmax")
    looks = {
        PUBLISHED: ("batches as in training", style.VERMILION, "o"),
        UNAUGMENTED: ("batches without augmentation", style.SKY, "v"),
        MCBN: ("around running statistics", style.BLUE, "D"),
    }
    for method, (label, colour, marker) in looks.items():
        matching = [row for row in results["rows"] if row["method"] == method]
        if not matching:
            continue
        samples, nll, errors = ([row[key] for row in matching] for key in ("samples", "nll", "standard_error"))
        ax.errorbar(samples, nll, errors, color=colour, marker=marker, ms=5, capsize=2, label=f"ours: {label}")
    for method, colour in ((SOFTMAX, style.ORANGE), (TEMPERATURE, style.GREEN)):
        row = next(row for row in results["rows"] if row["method"] == method)
        ax.axhline(row["nll"], color=colour, ls="-.", label=f"ours: {method}")
    ax.set(
        xlabel="number of samples",
        ylabel="NLL (lower is better; bars: one standard error)",
        title="Table 2, batch size 32",
    )
    ax.legend(frameon=False, fontsize="x-small")


def _draw_passes(ax: Axes, rows: Sequence[Row]) -> None:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    by_samples = [method for method in methods if len([row for row in rows if row["method"] == method]) > 1]
    single = [method for method in methods if method not in by_samples]
    for number, method in enumerate([*by_samples, *single]):
        matching = [row for row in rows if row["method"] == method]
        curve = method in by_samples
        colour = COLOURS[number % len(COLOURS)]
        marker = "o" if curve else style.MARKERS[1 + (number - len(by_samples)) % (len(style.MARKERS) - 1)]
        passes, nll = [row["passes"] for row in matching], [row["nll"] for row in matching]
        size, stroke = (4, style.STROKES[number % len(style.STROKES)]) if curve else (8, "")
        ax.plot(passes, nll, ls=stroke, color=colour, marker=marker, ms=size, label=method)
    ax.set(xlabel="cost of a prediction, in forward passes", ylabel="NLL (lower is better)", title="NLL against cost")
    ax.legend(frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def _with_error(value: float, error: float | None, sign: str = "") -> str:
    """Return a number and its standard error, such as "0.302 ± 0.012"."""
    return f"{value:{sign}.3f} ± {error:.3f}"
