"""Plots that only pages need: predictions, errors, drift of a column, causes of uncertainty, the learning curve."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from ..errors import InputError
from ..plots import spread_out, style
from ..words import format_day, format_number, format_percent, truncate
from .regression import Array, RegressionTest

if TYPE_CHECKING:
    from ..tabular import ColumnDrift

# Most points and intervals in a picture of predictions.
MOST_POINTS, MOST_INTERVALS = 600, 150

# Categories in a picture of a column, and characters of a name, at most.
MOST_CATEGORIES, LONGEST = 10, 18

# More rows help if they could remove more than this share of the squared error.
CLEAR_SHARE = 0.1

# If what remains is more than this share of the squared error of the baseline, the model explains hardly anything.
ALL_NOISE = 0.9

# The curve is extrapolated to these multiples of the number of rows.
TIMES = (2, 4)


@dataclass(frozen=True)
class PredictedRows:
    """Targets and predictions of test rows, (points,), evenly spaced in the order of the predictions.

    Args:
        mean, lower, upper: Means and intervals of the predictives.
        y: The targets.
    """

    mean: Array
    lower: Array
    upper: Array
    y: Array

    @classmethod
    def from_test(cls, test: RegressionTest) -> Self:
        """Select some of the test rows."""
        order = np.argsort(test.mean, kind="stable")[spread_out(len(test), MOST_POINTS)]
        return cls(test.mean[order], test.lower[order], test.upper[order], test.y[order])

    def draw_points(self, ax: style.Axes, height: Array) -> None:
        """Draw points, and crosses for targets outside their intervals."""
        now = style.current()
        inside = (self.lower <= self.y) & (self.y <= self.upper)
        marks: dict[str, Any] = {"ms": 4, "mew": 0, "alpha": 0.75, "color": now.model, "label": "inside its interval"}
        ax.plot(self.mean[inside], height[inside], "o", **marks)
        ax.plot(self.mean[~inside], height[~inside], "x", ms=5, mew=1.4, color=now.rival, label="outside")


class PredictedTruePlot(PredictedRows):
    """Targets against predictions."""

    title = "Predictions should lie on the diagonal"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure: a point for every row, with its interval as a horizontal line."""
        now = style.current()
        ax = style.axes(ax, style.SQUARE)
        ends = [min(self.y.min(), self.mean.min()), max(self.y.max(), self.mean.max())]
        some = spread_out(len(self.y), MOST_INTERVALS)
        # One broken line for all intervals keeps the file small. Infinite intervals run to the edge of the picture.
        values = np.concatenate([ends, self.lower[np.isfinite(self.lower)], self.upper[np.isfinite(self.upper)]])
        margin = 0.05 * (values.max() - values.min())
        edges = values.min() - margin, values.max() + margin
        lower, upper = (np.clip(end[some], *edges) for end in (self.lower, self.upper))
        across = np.stack([lower, upper, np.full(len(some), np.nan)], axis=1).ravel()
        ax.plot(across, np.repeat(self.y[some], 3), color=now.backdrop, linewidth=0.8, alpha=0.6, label="interval")
        ax.plot(ends, ends, color=now.ink, linewidth=1.0, linestyle="--", label="perfect")
        self.draw_points(ax, self.y)
        if margin > 0:
            ax.set_xlim(*edges)
        ax.set(xlabel="predicted", ylabel="true")
        style.legend(ax, loc="upper left")
        return ax


class ResidualPlot(PredictedRows):
    """Errors against predictions."""

    title = "The errors should have no pattern"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax`, or into a new figure."""
        ax, error = style.axes(ax, style.SQUARE), self.y - self.mean
        ax.axhline(0.0, color=style.current().ink, linewidth=1.0, linestyle="--")
        self.draw_points(ax, error)
        reach = 1.05 * float(np.abs(error).max()) or 1.0
        ax.set(xlabel="predicted", ylabel="true minus predicted", ylim=(-reach, reach))
        style.legend(ax, loc="best")
        return ax


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

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure."""
        ax, now = style.axes(ax), style.current()
        column = self.column
        plain = style.without_formulas(column.name[: 2 * LONGEST])
        if column.shares:
            most = changed_most(column, MOST_CATEGORIES)
            shown = [share for share in column.shares if share in most]
            place = np.arange(len(shown))[::-1]
            ax.barh(place + 0.2, [a for _, a, _ in shown], 0.4, color=now.model, label="training")
            ax.barh(place - 0.2, [b for _, _, b in shown], 0.4, color=now.rival, label="new")
            ax.set_yticks(place, [style.without_formulas(truncate(name, LONGEST)) for name, _, _ in shown])
            ax.set(xlabel="share of rows", ylabel=plain)
            style.percent_axis(ax.xaxis)
            ax.grid(visible=False, axis="y")
        elif column.edges:
            ax.stairs(column.training_shares, column.edges, fill=True, color=now.model, alpha=0.4, label="training")
            ax.stairs(column.new_shares, column.edges, color=now.rival, linewidth=2, label="new")
            ax.set(xlabel=plain, ylabel="share of rows")
            style.percent_axis(ax.yaxis)
            ax.set_ylim(bottom=0)
            if column.kind == "date":
                ends = [column.edges[0], column.edges[-1]]
                ax.set_xticks(ends, [format_day(float(end)) for end in ends])
        else:
            ax.bar([0, 1], column.missing, color=[now.model, now.rival])
            ax.set_xticks([0, 1], ["training", "new"])
            ax.set(xlabel=plain, ylabel="share of missing values")
            style.percent_axis(ax.yaxis)
        style.headline(ax, style.without_formulas(self.title))
        if ax.get_legend_handles_labels()[0]:
            style.legend(ax, loc="best")
        return ax


def changed_most(column: ColumnDrift, most: int) -> list[tuple[str, float, float]]:
    """Return the categories whose shares changed most, with their shares in training and now."""
    return sorted(column.shares, key=lambda share: -abs(share[2] - share[1]))[:most]


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

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
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
            style.annotate(ax, format_percent(round(share, 2) + 0.0), (share, at), (4 if share >= 0 else -4, 0), **side)
        # Space for the numbers beside the longest bars.
        low, high = min(0.0, *self.shares), max(0.0, *self.shares)
        width = high - low or 1.0
        ax.set_xlim(low - 0.28 * width * (low < 0), high + 0.2 * width)
        ax.set_yticks(place, [style.without_formulas(name) for name in self.names])
        ax.tick_params(axis="y", length=0, labelsize="medium")
        ax.set_xticks([])  # every bar has a number
        ax.spines[["left", "bottom"]].set_visible(False)
        ax.set_xlabel(self.axis)
        style.headline(ax, style.without_formulas(self.title))
        return ax


@dataclass(frozen=True)
class LearningCurve:
    """Errors on held-out rows, by the number of training rows.

    Errors are mean squared errors, in the squared units of the target, or Brier scores of class probabilities.

    Args:
        rows: Numbers of training rows of single networks, ascending; two or more.
        errors: Error of single networks for each of these numbers.
        error: Error of the model on the held-out rows. Its networks are trained on the last number of rows.
        share: Share of this error that more rows could remove.
        exponent: That share falls with the number of rows to the power of minus `exponent`.
        guess: Error of always answering the average, or the class frequencies.
        measure: How errors are shown: "RMSE" for the root, or "Brier" as they are.
    """

    rows: tuple[int, ...]
    errors: tuple[float, ...]
    error: float
    share: float
    exponent: float
    guess: float
    measure: Literal["RMSE", "Brier"]

    def __post_init__(self) -> None:
        ascending = sorted(set(self.rows)) == list(self.rows) and min(self.rows, default=0) > 0
        if len(self.rows) < 2 or len(self.rows) != len(self.errors) or not ascending:
            raise InputError(
                f"rows must be two or more ascending numbers with one error each, got {list(self.rows)} with "
                f"{len(self.errors)} errors."
            )
        if not 0 <= self.share <= 1:
            raise InputError(f"share must be between 0 and 1, got {self.share:g}.")

    @property
    def floor(self) -> float:
        """The error that more rows are not expected to remove; it is not shown, because another kind of model may."""
        return self.error * (1 - self.share)

    @property
    def explains_little(self) -> bool:
        """Whether this kind of model explains hardly anything, however many rows there are."""
        return self.floor > ALL_NOISE * self.guess

    @property
    def helps(self) -> bool:
        """Whether more rows would clearly lower the error."""
        return self.share > CLEAR_SHARE and not self.explains_little

    def at(self, times: float) -> float:
        """Return the expected error of the model, as shown, with `times` as many rows."""
        return self.shown(self.floor + (self.error - self.floor) * times**-self.exponent)

    def shown(self, error: float) -> float:
        """Return an error as the report shows it."""
        return math.sqrt(error) if self.measure == "RMSE" else error

    @property
    def title(self) -> str:
        return f"More rows would {'lower' if self.helps else 'hardly lower'} the error"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure: single networks, and the model with more rows."""
        ax, now = style.axes(ax), style.current()
        single = [self.shown(error) for error in self.errors]
        ax.set_xscale("log")
        ax.plot(self.rows, single, "s-", color=now.dots, linewidth=1.6, ms=5, label="one network, measured")
        last, steps = self.rows[-1], np.geomspace(1, TIMES[-1], 40)
        ax.plot(last * steps, [self.at(step) for step in steps], "--", color=now.model, label="the model, expected")
        ax.plot([last], [self.at(1)], "o", color=now.model, ms=8, label="the model now")
        later = [last * times for times in TIMES]
        ax.plot(later, [self.at(times) for times in TIMES], "o", color=now.model, mfc="none")
        for times in (1, *TIMES):
            style.annotate(ax, format_number(self.at(times), 3), (last * times, self.at(times)), (7, 5), color=now.ink)
        places = [*self.rows, *later]
        ax.set_xticks(places, [f"{place:,}" for place in places])
        ax.minorticks_off()
        ax.set(xlim=(places[0] / 1.25, places[-1] * 1.4), ylim=(0, 1.15 * max(*single, self.at(1)) or 1.0))
        error = "typical error (RMSE)" if self.measure == "RMSE" else "squared error (Brier)"
        ax.set(xlabel="training rows of each network", ylabel=error)
        style.legend(ax, loc="best")
        style.headline(ax, self.title)
        return ax
