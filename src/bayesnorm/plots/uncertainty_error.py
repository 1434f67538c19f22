"""A plot of errors of test points sorted by total standard deviation (Teye et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import torch

from ..arguments import require_positive, require_whole
from ..errors import InputError
from ..metrics import finite_std, number_vector, pit, regression_targets, spearman
from ..predictive import RegressionPredictive
from ..words import format_count
from . import style

TITLE = "Errors should grow with the total standard deviation"
LEVELS = (0.5, 0.95)
# Half the width of a normal's central interval, in standard deviations, by level.
QUANTILES = {level: NormalDist().inv_cdf((1 + level) / 2) for level in LEVELS}

# The largest number of points of intervals and lines; the running mean is still computed from all points.
BAND_POINTS = 300

# The largest number of single errors that are drawn.
DOTS = 800


@dataclass(frozen=True)
class UncertaintyErrorPlot:
    """Errors of N test points, sorted by total standard deviation.

    Args:
        std: Total standard deviations in increasing order, (N,).
        error: Target minus predictive mean, in the same order, (N,).
        running: Running mean of the absolute errors, (N,).
        window: Number of points in each running mean; fewer near the ends.
        at: Positions in this order at which the intervals are computed, (P,).
        bands: Half the width of the central intervals by level, (P,).
        inside: Share of all targets inside the interval, by level.
        constant_std: Standard deviation of the constant baseline, or None.
        target: Name of the target.
        unit: Unit of the target.
        title: The title.
    """

    std: np.ndarray
    error: np.ndarray
    running: np.ndarray
    window: int
    at: np.ndarray
    bands: dict[float, np.ndarray]
    inside: dict[float, float]
    constant_std: float | None = None
    target: str = ""
    unit: str | None = None
    title: str = TITLE

    @classmethod
    def from_predictive(
        cls, predictive: RegressionPredictive, y: Any, constant_std: float | None = None, **options: Any
    ) -> Self:
        """Return the plot of predictions and their targets; every output of an example is a point.

        Args:
            predictive: Predictions on test data.
            y: Test targets.
            constant_std: Standard deviation of the constant baseline: the square root of `metrics.constant_variance`
                on validation data.
            **options: `window`, `target`, `unit` and `title`, as in `from_arrays`.
        """
        targets = regression_targets(predictive, y).flatten()
        middle, std = predictive.mean.flatten(), finite_std(predictive).flatten()
        plot = cls.from_arrays(targets - middle, std, constant_std, **options)
        shown = torch.argsort(std, stable=True)[torch.from_numpy(plot.at).to(std.device)]
        loc, scale = predictive.loc.flatten(1)[:, shown], predictive.scale.flatten(1)[:, shown]
        floored = scale.clamp_min(torch.finfo(scale.dtype).tiny)
        some = RegressionPredictive(loc, floored, predictive.weights, predictive.noise)
        edges = {level: some.interval(level) for level in LEVELS}
        centre = middle[shown]
        away = (pit(predictive, y).flatten() - 0.5).abs()
        return replace(
            plot,
            bands={level: (_array(high - centre) - _array(low - centre)) / 2 for level, (low, high) in edges.items()},
            inside={level: float((away <= level / 2).double().mean()) for level in LEVELS},
        )

    @classmethod
    def from_arrays(
        cls, error: Any, std: Any, constant_std: float | None = None, *, window: int | None = None, **labels: Any
    ) -> Self:
        """Return the plot for errors (target minus mean) and standard deviations, with Gaussian intervals.

        Args:
            error: Target minus predictive mean of every point.
            std: Total standard deviation of every point.
            constant_std: Standard deviation of the constant baseline.
            window: Number of points in a running mean. [default: a fifteenth of all, at least 9]
            **labels: `target`, `unit` and `title`.
        """
        errors = number_vector("error", error, infinite=False)
        stds = number_vector("std", std, infinite=False)
        if errors.shape != stds.shape:
            raise InputError(
                f"error and std must have one number each per point, got {len(errors)} and {len(stds)} numbers."
            )
        if bool((stds < 0).any()):
            raise InputError(f"std must not be negative, got {float(stds.min())}.")
        if constant_std is not None:
            constant_std = require_positive("constant_std", constant_std)
        points = len(stds)
        window = min(points, max(9, round(points / 15))) if window is None else window
        requirement = f"a whole number from 1 to {points}, the number of points"
        window = require_whole("window", window, 1, points, requirement=requirement)
        order = torch.argsort(stds, stable=True)
        ordered, off = _array(stds[order]), _array(errors[order])
        at = style.spread_out(points, BAND_POINTS)
        return cls(
            std=ordered,
            error=off,
            running=running_mean(np.abs(off), window),
            window=window,
            at=at,
            bands={level: QUANTILES[level] * ordered[at] for level in LEVELS},
            inside={level: float((np.abs(off) <= QUANTILES[level] * ordered).mean()) for level in LEVELS},
            constant_std=constant_std,
            **labels,
        )

    @property
    def rank_correlation(self) -> float | None:
        """Spearman's rank correlation of standard deviation and absolute error; None if either is constant."""
        try:
            return float(spearman(self.std, np.abs(self.error)))
        except InputError:
            return None

    @property
    def summary(self) -> str:
        """The main result in one line."""
        shares = (f"{level:.0%} interval covers {self.inside[level]:.0%}" for level in LEVELS)
        return f"{', '.join(shares)}; {self.brief}".replace("%", " %")

    @property
    def brief(self) -> str:
        """The main number, for small panels."""
        correlation = self.rank_correlation
        points = format_count(len(self.std), "point")
        return points if correlation is None else f"rank correlation {correlation:.2f} ({points})"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw absolute errors into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax), style.current()
        place, error = self.at + 1, np.abs(self.error)
        for level, alpha, zorder in ((0.95, 0.2, 1.0), (0.5, 0.38, 1.1)):
            label = f"{style.percent(level)} interval"
            look: dict[str, Any] = {
                "color": now.model,
                "alpha": alpha,
                "linewidth": 0,
                "zorder": zorder,
                "label": label,
            }
            ax.fill_between(place, 0.0, self.bands[level], **look)
        shown = style.spread_out(len(error), DOTS)
        top = self._top()
        beyond = np.abs(error[shown]) > top
        size, alpha = (14, 0.75) if len(shown) <= 400 else (6, 0.5)
        dots: dict[str, Any] = {"color": now.dots, "alpha": alpha, "linewidths": 0, "zorder": 2}
        ax.scatter(shown[~beyond] + 1, error[shown][~beyond], s=size, label="absolute error", **dots)
        if beyond.any():
            edge = np.full(beyond.sum(), top * 0.985)
            ax.scatter(shown[beyond] + 1, edge, s=3 * size, marker="d", label="off the scale", **dots)
        some = style.spread_out(len(error), BAND_POINTS)
        ax.plot(some + 1, self.running[some], color=now.ink, linewidth=2.0, zorder=4, label="running mean")
        if self.constant_std is not None:
            label = "constant baseline, 50 % and 95 %"
            for level in LEVELS:
                height = QUANTILES[level] * self.constant_std
                ax.axhline(height, color=now.rival, linestyle="--", linewidth=1.4, zorder=3, label=label)
                label = "_other edge"
        ax.set_xlim(1 - 0.01 * len(error), len(error) + 0.01 * len(error) + (len(error) == 1))
        ax.set_ylim(0, top)
        ax.xaxis.set_major_locator(style.matplotlib().ticker.MaxNLocator(integer=True, nbins=7))
        ax.set_xlabel("test points, sorted by total standard deviation")
        ax.set_ylabel(style.with_unit(" of ".join(filter(None, ("absolute error", self.target))), self.unit))
        return style.finish(ax, self.title, self.summary, legend_columns=3)

    def _top(self) -> float:
        """Return the end of the axis. A few huge values must not flatten the rest; they are drawn at the edge."""
        band, error = np.quantile(self.bands[0.95], 0.98), np.quantile(np.abs(self.error), 0.995)
        constant = QUANTILES[0.95] * (self.constant_std or 0.0)
        return float(max(band, error, constant) * 1.12) or 1.0


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the `window` values around each value; fewer near the ends."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    first = np.maximum(place - window // 2, 0)
    end = np.minimum(place - window // 2 + window, len(values))
    return (sums[end] - sums[first]) / (end - first)


def _array(values: torch.Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()
