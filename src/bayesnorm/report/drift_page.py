"""The page about new rows: whether they differ from the training rows, in which columns, and where in the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots import DriftLayers, style
from .contents import Provenance
from .drift_words import chance_words, column_words, headline, moved_words, network_words, unlike_words
from .pictures import PagePicture, page_picture
from .verdict import SYMBOLS, Grade
from .words import date

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..tabular import ColumnDrift, TableDrift

# Columns with a picture, and columns in the list, at most.
MOST_PICTURES, MOST_COLUMNS = 12, 200

# Categories in a picture, and characters of a name, at most.
MOST_BARS, LONGEST = 10, 18


@dataclass(frozen=True)
class DriftReport:
    """The contents of the page.

    Args:
        file: Name of the file with the new rows.
        target: Name of the column that the model predicts.
        drift: The result of the comparison.
        provenance: How the page was made.
        why: Reasons why single rows are unusual compared with the training rows, with the number of rows for each.
    """

    file: str
    target: str
    drift: TableDrift
    provenance: Provenance
    why: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ColumnPlot:
    """The values of a column in the training rows and in the new rows.

    Args:
        column: The comparison of the column.
    """

    column: ColumnDrift

    @property
    def title(self) -> str:
        return self.column.name

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax` or a new figure."""
        ax, now = style.axes(ax), style.current()
        column = self.column
        # A dollar sign would start a formula.
        plain = column.name[: 2 * LONGEST].replace("$", r"\$")
        if column.shares:
            order = sorted(column.shares, key=lambda each: -abs(each[2] - each[1]))[:MOST_BARS]
            shown = [each for each in column.shares if each in order]
            names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name, _, _ in shown]
            place = np.arange(len(shown))[::-1]
            ax.barh(place + 0.2, [a for _, a, _ in shown], 0.4, color=now.model, label="training")
            ax.barh(place - 0.2, [b for _, _, b in shown], 0.4, color=now.rival, label="new")
            ax.set_yticks(place, [name.replace("$", r"\$") for name in names])
            ax.set_xlabel("share of rows")
            ax.set_ylabel(plain)
            style.percent_axis(ax.xaxis)
            ax.grid(visible=False, axis="y")
        elif column.edges:
            ax.stairs(column.training_shares, column.edges, fill=True, color=now.model, alpha=0.4, label="training")
            ax.stairs(column.new_shares, column.edges, color=now.rival, linewidth=2, label="new")
            ax.set_xlabel(plain)
            ax.set_ylabel("share of rows")
            style.percent_axis(ax.yaxis)
            ax.set_ylim(bottom=0)
            if column.kind == "date":
                ends = [column.edges[0], column.edges[-1]]
                ax.set_xticks(ends, [date(float(end)) for end in ends])
        else:
            ax.bar([0, 1], column.missing, color=[now.model, now.rival])
            ax.set_xticks([0, 1], ["training", "new"])
            ax.set_xlabel(plain)
            ax.set_ylabel("share of missing values")
            style.percent_axis(ax.yaxis)
        style.headline(ax, self.title.replace("$", r"\$"))
        if ax.get_legend_handles_labels()[0]:
            style.legend(ax, loc="best")
        return ax


def drift_context(report: DriftReport) -> dict[str, Any]:
    """Return the values that the template uses, by name."""
    drift = report.drift
    grade: Grade = "poor" if drift.drifted else "good"
    order = sorted(drift.columns, key=lambda column: (not column.moved, column.p_value))
    return {
        "report": report,
        "title": report.file,
        "drift": drift,
        "grade": grade,
        "symbol": SYMBOLS[grade],
        "headline": headline(drift),
        "chance": chance_words(drift),
        "moved": moved_words(drift),
        "network": network_words(drift),
        "unlike": unlike_words(drift, report.why),
        "columns": [(column, column_words(column)) for column in order[:MOST_COLUMNS]],
        "pictures": [
            page_picture("drift", ColumnPlot(column), _sentence(column_words(column)), f"Column{i}")
            for i, column in enumerate(drift.moved[:MOST_PICTURES])
        ],
        "layers": _layers(drift),
    }


def _sentence(words: str) -> str:
    """Return words with a capital letter and a full stop."""
    return f"{words[0].upper()}{words[1:]}."


def _layers(drift: TableDrift) -> PagePicture | None:
    if drift.network is None:
        return None
    caption = (
        "One bar for each batch-norm layer, from input to output. The longer the bar, the less likely is such a "
        "difference for the same number of training rows. A change in one layer also affects the layers after it."
    )
    return page_picture("drift", DriftLayers.from_drift(drift.network), caption, "DriftLayers")
