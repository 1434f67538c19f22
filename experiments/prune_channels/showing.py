"""Make the table and the figure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from bayesnorm.plots import style

from ..panels import panels, set_figure_title
from .presets import CRITERIA, INT8, LABELS, OUTSIDE, SOFTMAX, TEACHER, WHOLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCORES = ("error", "nll", "auroc of errors", f"auroc of {OUTSIDE}")


def text(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    head = ("criterion", "multiply-adds", "bytes", "time", "epochs", "tuned by", *SCORES)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        scores = " | ".join(f"{row[name]:.3f}" for name in SCORES)
        sizes = " | ".join(f"{row[name]:.2f}" for name in ("share", "bytes", "time"))
        lines.append(f"| {row['criterion']} | {sizes} | {row['epochs']} | {row['tuned']} | {scores} |")
    return "\n".join(lines)


LINES = {"": "-", LABELS: ":", TEACHER: "-"}


def draw(rows: Sequence[dict[str, Any]]) -> Axes:
    """Plot every score against the fraction of multiply-adds, networks without fine-tuning above fine-tuned ones."""
    (whole,) = (row for row in rows if row["criterion"] == WHOLE)
    others = [row for row in rows if row["criterion"] in (SOFTMAX, INT8)]
    above, below = panels(2, len(SCORES))
    for axes, tunings in ((above, ("",)), (below, (TEACHER, LABELS))):
        for ax, score in zip(axes, SCORES, strict=True):
            for (number, criterion), tuned in product(enumerate(CRITERIA), tunings):
                colour, _, marker = style.current().look(number)
                matching = [row for row in rows if row["criterion"] == criterion and row["tuned"] == tuned]
                points = sorted((row["share"], row[score]) for row in [whole, *matching])
                label = f"{criterion}, by {tuned}" if tuned else criterion
                ax.plot(*zip(*points, strict=True), ls=LINES[tuned], marker=marker, color=colour, label=label)
            for number, row in enumerate(others, len(CRITERIA)):
                colour, _, marker = style.current().look(number)
                ax.plot(row["share"], row[score], ls="", marker=marker, color=colour, label=row["criterion"])
            ax.set_xlabel("fraction of multiply-adds")
            ax.set_ylabel(f"{score}, fine-tuned" if axes is below else f"{score}, without fine-tuning")
        axes[0].legend()
    set_figure_title(above[0], "Channels pruned from a trained ResNet")
    return above[0]
