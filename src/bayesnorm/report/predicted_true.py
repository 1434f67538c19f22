"""Plots of predictions against targets, and of the remaining errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..plots import style
from ..plots.thinning import spread_out
from .arrays import Array
from .regression import RegressionTest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Most points and intervals that a picture shows.
MOST_POINTS, MOST_INTERVALS = 600, 150


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

    def draw_points(self, ax: Axes, height: Array) -> None:
        """Draw points, and crosses for targets outside their intervals."""
        now = style.current()
        inside = (self.lower <= self.y) & (self.y <= self.upper)
        held: dict[str, Any] = {"ms": 4, "mew": 0, "alpha": 0.75, "color": now.model, "label": "inside its interval"}
        ax.plot(self.mean[inside], height[inside], "o", **held)
        ax.plot(self.mean[~inside], height[~inside], "x", ms=5, mew=1.4, color=now.rival, label="outside")


class PredictedTruePlot(PredictedRows):
    """Targets against predictions."""

    title = "Predictions should lie on the diagonal"

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax` or a new figure: a point for every row, with its interval as a horizontal line."""
        now = style.current()
        ax = style.axes(ax, style.SQUARE)
        ends = [min(self.y.min(), self.mean.min()), max(self.y.max(), self.mean.max())]
        some = spread_out(len(self.y), MOST_INTERVALS)
        # One broken line for all intervals keeps the file small. Infinite intervals run to the edge of the picture.
        seen = np.concatenate([ends, self.lower[np.isfinite(self.lower)], self.upper[np.isfinite(self.upper)]])
        room = 0.05 * (seen.max() - seen.min())
        edges = seen.min() - room, seen.max() + room
        lower, upper = (np.clip(end[some], *edges) for end in (self.lower, self.upper))
        across = np.stack([lower, upper, np.full(len(some), np.nan)], axis=1).ravel()
        ax.plot(across, np.repeat(self.y[some], 3), color=now.backdrop, linewidth=0.8, alpha=0.6, label="interval")
        ax.plot(ends, ends, color=now.ink, linewidth=1.0, linestyle="--", label="perfect")
        self.draw_points(ax, self.y)
        if room > 0:
            ax.set_xlim(*edges)
        ax.set_xlabel("predicted")
        ax.set_ylabel("true")
        style.legend(ax, loc="upper left")
        return ax


class ResidualPlot(PredictedRows):
    """Errors against predictions."""

    title = "The errors should have no pattern"

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure."""
        ax, error = style.axes(ax, style.SQUARE), self.y - self.mean
        ax.axhline(0.0, color=style.current().ink, linewidth=1.0, linestyle="--")
        self.draw_points(ax, error)
        reach = 1.05 * float(np.abs(error).max()) or 1.0
        ax.set_ylim(-reach, reach)
        ax.set_xlabel("predicted")
        ax.set_ylabel("true minus predicted")
        style.legend(ax, loc="best")
        return ax
