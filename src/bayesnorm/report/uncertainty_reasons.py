"""Bar charts of the columns that cause the epistemic uncertainty of the most uncertain rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..plots import style
from .contents import Report, RowReasons, UncertaintyReasons
from .pictures import PagePicture, page_picture
from .regression import RegressionTest
from .uncertain_rows import input_text
from .words import count, number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Rows with a chart. With the chart of all rows, they fill a page of two or three columns.
MOST_ROWS = 5

# Bars in a chart, and characters in the label of a bar and in its value.
MOST_BARS, LONGEST, LONGEST_VALUE = 6, 24, 12


@dataclass(frozen=True)
class Bars:
    """Named bars on both sides of 0.

    Args:
        title: Title, which states the result.
        names: Labels of the bars, from the top.
        shares: Lengths of the bars.
        axis: Label of the axis.
        usual: Whether the first bar is the typical row, which gets a muted colour.
    """

    title: str
    names: tuple[str, ...]
    shares: tuple[float, ...]
    axis: str
    usual: bool = False

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax` or a new figure."""
        ax, now = style.axes(ax), style.current()
        place = np.arange(len(self.names))[::-1]
        colours = [now.rival if share >= 0 else now.model for share in self.shares]
        if self.usual:
            colours[0] = now.dots
        ax.barh(place, self.shares, 0.7, color=colours)
        ax.grid(visible=False)
        ax.axvline(0, color=now.faint, linewidth=1)
        for at, share in zip(place, self.shares, strict=True):
            side = {"ha": "left" if share >= 0 else "right", "va": "center", "color": now.ink, "fontsize": "medium"}
            style.annotate(ax, percent(round(share, 2) + 0.0), (share, at), (4 if share >= 0 else -4, 0), **side)
        # Space for the numbers beside the longest bars.
        low, high = min(0.0, *self.shares), max(0.0, *self.shares)
        room = high - low or 1.0
        ax.set_xlim(low - 0.28 * room * (low < 0), high + 0.2 * room)
        # A dollar sign would start a formula.
        ax.set_yticks(place, [name.replace("$", r"\$") for name in self.names])
        ax.tick_params(axis="y", length=0, labelsize="medium")
        ax.set_xticks([])  # every bar has a number
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.set_xlabel(self.axis)
        style.headline(ax, self.title.replace("$", r"\$"))
        return ax


def reason_pictures(report: Report) -> tuple[PagePicture, ...]:
    """Draw the most common reasons, and those of the most uncertain rows; nothing if no reasons are known."""
    if report.reasons is None:
        return ()
    rows = [_row_picture(report, each, place) for place, each in enumerate(report.reasons.rows[:MOST_ROWS])]
    return (_overall_picture(report.reasons), *rows)


def _overall_picture(reasons: UncertaintyReasons) -> PagePicture:
    """Draw how often each column is the main cause."""
    names, shares = list(reasons.first), list(reasons.first.values())
    if not names:
        names, shares = ["no column"], [1.0]
    causes = names[:1] if shares[0] > 0.5 else names[:2]
    title = f"The most frequent main cause is {' or '.join(causes)}"
    if len(names) > MOST_BARS:
        rest = sum(shares[MOST_BARS - 1 :])
        names, shares = [*names[: MOST_BARS - 1], "other columns"], [*shares[: MOST_BARS - 1], rest]
    caption = (
        f"The column that adds most to the epistemic uncertainty, for the {count(reasons.explained, 'row')} where it "
        "is largest."
    )
    plot = Bars(title, tuple(_short(name, LONGEST) for name in names), tuple(shares), "share of rows")
    return page_picture("reasons", plot, caption, "Reasons")


def _row_picture(report: Report, reasons: RowReasons, place: int) -> PagePicture:
    """Draw how much the columns of a row add to its uncertainty."""
    names, shares, values = report.rows.names, np.array(reasons.shares), report.rows.values[reasons.row]
    order = np.argsort(-np.abs(shares), kind="stable")
    kept = order[: MOST_BARS - (len(order) > MOST_BARS)]
    kept = kept[np.argsort(-shares[kept], kind="stable")]
    named, long = ["a typical row"], [1 - float(shares.clip(0).sum())]
    for at in kept:
        value = _short(input_text(report.table.columns[at], values[at]), LONGEST_VALUE)
        named.append(f"{_short(names[at], LONGEST - 2 - len(value))}: {value}")
        long.append(float(shares[at]))
    if len(order) > len(kept):
        named.append("other columns")
        long.append(float(shares.sum() - shares[kept].sum()))
    title = (
        f"Row {report.rows.numbers[reasons.row]}: {f'mainly {reasons.words}' if reasons.words else 'no single column'}"
    )
    plot = Bars(title, tuple(named), tuple(long), "share of the epistemic uncertainty", usual=True)
    total, usual = reasons.total, reasons.baseline
    if isinstance(report.test, RegressionTest):
        caption = (
            f"The epistemic standard deviation is {number(total**0.5, 3)}; for a typical row, {number(usual**0.5, 3)}."
        )
    else:
        caption = f"The mutual information is {number(total, 3)} nats; for a typical row, {number(usual, 3)}."
    return page_picture("reasons", plot, caption, f"Reasons{place}")


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
