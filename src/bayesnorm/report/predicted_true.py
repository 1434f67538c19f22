"""Plots of predictions against targets, and of what was left over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from ..plots import style
from ..plots.thinning import spread_out
from .arrays import Array
from .regression import RegressionTest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS, MOST_INTERVALS = 600, 150
"""Most points and intervals that a picture can show before it is a blot."""


@dataclass(frozen=True)
class PredictedTruePlot:
    """Targets against predictions, (points,), of rows evenly spaced over the predictions' order.

    Args:
        mean, lower, upper: Means and intervals of the predictives.
        y: The targets.
        all_rows: Number of rows that they were taken from.
    """

    mean: Array
    lower: Array
    upper: Array
    y: Array
    all_rows: int

    @classmethod
    def from_test(cls, test: RegressionTest) -> Self:
        """Take a selection of the test rows."""
        order = np.argsort(test.mean, kind="stable")[spread_out(len(test), MOST_POINTS)]
        return cls(test.mean[order], test.lower[order], test.upper[order], test.y[order], len(test))

    @property
    def inside(self) -> np.ndarray:
        """Mask of the points whose interval holds the target."""
        return (self.lower <= self.y) & (self.y <= self.upper)

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure: a point for every row, its interval drawn sideways."""
        now = style.current()
        ax = style.axes(ax, style.SQUARE)
        ends = [min(self.y.min(), self.mean.min()), max(self.y.max(), self.mean.max())]
        some = spread_out(len(self.y), MOST_INTERVALS)
        # One broken line for all intervals: a small file.
        across = np.stack([self.lower[some], self.upper[some], np.full(len(some), np.nan)], axis=1).ravel()
        ax.plot(across, np.repeat(self.y[some], 3), color=now.backdrop, linewidth=0.8, alpha=0.6, label="interval")
        ax.plot(ends, ends, color=now.ink, linewidth=1.0, linestyle="--", label="perfect")
        _points(ax, self.mean, self.y, self.inside)
        ax.set_xlabel("predicted")
        ax.set_ylabel("true")
        style.legend(ax, loc="upper left")
        return ax


@dataclass(frozen=True)
class ResidualPlot:
    """Errors of predictions, (points,), of rows evenly spaced over the predictions' order.

    Args:
        mean: Predictions.
        error: Target less prediction.
        inside: Mask of the points whose interval holds the target.
    """

    mean: Array
    error: Array
    inside: np.ndarray

    @classmethod
    def from_test(cls, test: RegressionTest) -> Self:
        """Take a selection of the test rows."""
        order = np.argsort(test.mean, kind="stable")[spread_out(len(test), MOST_POINTS)]
        return cls(test.mean[order], (test.y - test.mean)[order], test.inside[order])

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure."""
        now = style.current()
        ax = style.axes(ax, style.SQUARE)
        ax.axhline(0.0, color=now.ink, linewidth=1.0, linestyle="--")
        _points(ax, self.mean, self.error, self.inside)
        reach = 1.05 * float(np.abs(self.error).max()) or 1.0
        ax.set_ylim(-reach, reach)
        ax.set_xlabel("predicted")
        ax.set_ylabel("true less predicted")
        style.legend(ax, loc="best")
        return ax


def _points(ax: Axes, x: Array, y: Array, inside: np.ndarray) -> None:
    """Draw points, and crosses where an interval does not hold its target."""
    now = style.current()
    ax.plot(x[inside], y[inside], "o", ms=4, mew=0, alpha=0.75, color=now.model, label="held by its interval")
    ax.plot(x[~inside], y[~inside], "x", ms=5, mew=1.4, color=now.rival, label="not held")
