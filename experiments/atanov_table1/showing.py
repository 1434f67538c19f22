"""Make the table, with the paper's numbers and a verdict for every cell, and plot distributions of entropy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bayesnorm.plots import style

from ..panels import panels, set_figure_title
from ..paper_facts import paper_facts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCORES = {"error_percent": "error %", "nll": "NLL"}
# A cell holds if ours exceeds the paper's by at most this fraction, plus the standard errors of both.
WORSE = 0.1
STROKES = {"inside": "-", "outside": "--"}
SHOWN = ("softmax", "SBN", "MCBN", "Dropout, SBN", "DeepEnsemble", "DeepEnsemble, SBN")
COLOURS = (style.BLACK, style.ORANGE, style.BLUE, style.GREEN, style.PURPLE, style.VERMILION)


def cells(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every measured cell of the paper's table: the paper's number, ours and a verdict."""
    told = []
    for measured in results.values():
        setting = measured["setting"]
        for fact in paper_facts("atanov2018", 1):
            if (fact.dataset, fact.settings["net"]) != (setting["data"], setting["paper_network"]):
                continue
            name = fact.method if fact.method == "SBN" or fact.settings["sbn"] == "no" else f"{fact.method}, SBN"
            ours, error = measured["methods"][name][fact.metric]
            most = (1 + WORSE) * fact.value + 2 * ((error or 0) ** 2 + (fact.standard_error or 0) ** 2) ** 0.5
            told.append(
                {
                    "network": setting["network"],
                    "paper_network": setting["paper_network"],
                    "data": setting["data"],
                    "method": name,
                    "score": fact.metric,
                    "paper": fact.value,
                    "ours": round(ours, 4),
                    "standard_error": None if error is None else round(error, 4),
                    "verdict": "holds" if ours <= most else "does not",
                }
            )
    return told


def text(results: dict[str, Any]) -> str:
    """Return the table as text."""
    lines, told = [], cells(results)
    for measured in results.values():
        setting, theirs = measured["setting"], {}
        for cell in told:
            if cell["network"] == setting["network"] and cell["data"] == setting["data"]:
                theirs[cell["method"], cell["score"]] = f"{cell['paper']:g} {cell['verdict']}"
        lines += [
            "",
            f"{setting['network']} on {measured['training images']:,} images of {setting['data']}, outside "
            f"{setting['outside']}; {measured['samples']} samples, M = {measured['batch_size']}, {measured['members']} "
            f"networks (the paper: {setting['paper_network']})",
            f"{'':24}{'error %':>16}{'paper':>18}{'NLL':>17}{'paper':>18}{'AUROC entropy':>16}{'MI':>8}",
        ]
        for name, scores in measured["methods"].items():
            line = f"{name:24}"
            for score in SCORES:
                line += f"{_with_error(scores[score]):>16}{theirs.get((name, score), ''):>18}"
            lines.append(line + f"{scores['auroc'][0]:16.3f}{scores['auroc mutual information'][0]:8.3f}")
    return "\n".join(lines[1:])


def _with_error(value: tuple[float, float | None]) -> str:
    mean, error = value
    return f"{mean:.3f}" if error is None else f"{mean:.3f} ± {error:.3f}"


def draw(results: dict[str, Any]) -> Axes:
    """Plot the distribution function of the entropy inside and outside; one panel per network."""
    (axes,) = panels(1, len(results))
    for ax, measured in zip(axes, results.values(), strict=True):
        for method, colour in zip(SHOWN, COLOURS, strict=True):
            for kind, stroke in STROKES.items():
                quantiles = measured["methods"][method]["entropy quantiles"][kind]
                label = method if kind == "inside" else None
                ax.plot(quantiles, np.linspace(0, 1, len(quantiles)), color=colour, ls=stroke, lw=1.8, label=label)
        setting = measured["setting"]
        ax.set(
            title=f"{setting['network']} on {setting['data']} (solid), {setting['outside']} (dashed)",
            xlabel="predictive entropy (nats)",
            ylabel="fraction of images",
            ylim=(0, 1),
        )
        style.legend_below(ax, 3)
    set_figure_title(axes[0], "The curve should rise early for known images, and late for others")
    return axes[0]
