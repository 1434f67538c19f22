"""Plots of the calibration of regression, of all rows and by standard deviation, with the range by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy

from ..arguments import require_whole
from ..errors import BayesNormError, InputError
from ..metrics import finite_std, number_vector, pit, regression_targets
from ..predictive import RegressionPredictive, require_level
from ..words import format_count, format_number
from . import style

TITLE = "Coverage should equal the nominal probability"
COVERAGE_TITLE = "Coverage should be right for small and large standard deviations"
LEVELS = tuple(percent / 100 for percent in range(2, 100, 2))

# The probability of ranges by chance, and their label in a legend.
CHANCE = 0.95
BY_CHANCE = "explained by chance (95 %)"


def binomial_band(
    count: int | np.ndarray, probability: float | np.ndarray, chance: float = CHANCE
) -> tuple[np.ndarray, np.ndarray]:
    """Return the central range, (lower, upper), of the share of successes in `count` independent trials.

    Args:
        count: Number of trials, one or an array.
        probability: Probability of success in each trial, one or an array.
        chance: Probability of the range.
    """
    if np.min(count) < 1:
        raise BayesNormError(f"count must be at least 1, got {np.min(count)}.")
    lower, upper = scipy.stats.binom.interval(chance, count, probability)
    return lower / count, upper / count


@dataclass(frozen=True)
class CalibrationPlot:
    """Nominal and observed coverage of central intervals, each (levels,).

    Args:
        level: Nominal probability of the central interval.
        observed: Share of the targets inside the interval.
        lower, upper: Ends of the 95 % range by chance, for every level.
        count: Number of targets.
        title: The title.
    """

    level: np.ndarray
    observed: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    count: int
    title: str = TITLE

    @classmethod
    def from_predictive(cls, predictive: RegressionPredictive, y: Any, **options: Any) -> Self:
        """Return the plot of predictions and their targets; for the options see `from_pit`."""
        return cls.from_pit(pit(predictive, y).detach().flatten(), **options)

    @classmethod
    def from_pit(cls, transform: Any, *, levels: Sequence[float] = LEVELS, title: str = TITLE) -> Self:
        """Return the plot for probability integral transforms F(y), one per target."""
        values = _transform(transform)
        level = number_vector("levels", levels).numpy()
        if not ((level > 0) & (level < 1)).all():
            raise BayesNormError(
                f"levels must be strictly between 0 and 1, got values from {level.min()} to {level.max()}."
            )
        level = np.sort(level)
        away = np.sort(np.abs(values - 0.5))
        observed = np.searchsorted(away, level / 2, side="right") / len(away)
        lower, upper = binomial_band(len(away), level)
        return cls(level, observed, lower, upper, len(away), title=title)

    @property
    def mean_gap(self) -> float:
        """Mean absolute difference of observed and nominal coverage."""
        return float(np.abs(self.observed - self.level).mean())

    @property
    def summary(self) -> str:
        """The main result in one line."""
        return f"{self.brief}, {self.count:,} targets"

    @property
    def brief(self) -> str:
        """The main number, for small panels."""
        return f"mean gap {100 * self.mean_gap:.1f} percentage points"

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax, style.SQUARE), style.current()
        level, observed, lower, upper = (
            np.array([0.0, *part, 1.0]) for part in (self.level, self.observed, self.lower, self.upper)
        )
        ax.fill_between(level, lower, upper, color=now.faint, alpha=0.2, linewidth=0, label=BY_CHANCE)
        ax.plot([0, 1], [0, 1], color=now.faint, linestyle="--", linewidth=1.2, label="calibrated")
        ax.plot(level, observed, color=now.model, linewidth=2.2, label="observed")
        note: dict[str, Any] = {"color": now.faint, "fontsize": "small", "fontstyle": "italic", "va": "center"}
        ax.text(0.03, 0.72, "intervals too wide", ha="left", **note)
        ax.text(0.97, 0.26, "intervals too narrow", ha="right", **note)
        style.square_of_percents(ax)
        ax.set(xlabel="nominal probability of the interval", ylabel="coverage: share of targets inside")
        return style.finish(ax, self.title, self.summary, legend_columns=3)


@dataclass(frozen=True)
class CoveragePlot:
    """Coverage of groups of points, sorted by total standard deviation, each (groups,).

    Args:
        std: Median total standard deviation of each group.
        coverage: Share of each group's targets inside the interval.
        count: Number of points in each group.
        lower, upper: Ends of the 95 % range by chance, for every group.
        level: Nominal probability of the central interval.
        unit: Unit of the target.
        title: The title.
    """

    std: np.ndarray
    coverage: np.ndarray
    count: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    level: float
    unit: str | None = None
    title: str = COVERAGE_TITLE

    @classmethod
    def from_predictive(
        cls, predictive: RegressionPredictive, y: Any, *, level: float = 0.9, groups: int | None = None, **labels: Any
    ) -> Self:
        """Return the plot of predictions and their targets.

        Args:
            predictive: Predictions on test data.
            y: Test targets.
            level: Nominal probability of the central interval.
            groups: Number of groups with equally many points; points with equal standard deviation share a group.
                [default: 2 to 10, with 20 points or more each if there are enough]
            **labels: `unit` and `title`.
        """
        require_level(level)
        regression_targets(predictive, y)
        inside = (pit(predictive, y).flatten() - 0.5).abs() <= level / 2
        return cls.from_arrays(finite_std(predictive).flatten(), inside, level=level, groups=groups, **labels)

    @classmethod
    def from_arrays(cls, std: Any, inside: Any, *, level: float, groups: int | None = None, **labels: Any) -> Self:
        """Return the plot for standard deviations, and whether each target is in its interval of this level."""
        require_level(level)
        if groups is not None:
            groups = require_whole("groups", groups)
        stds = number_vector("std", std, infinite=False).detach().cpu().numpy()
        held = number_vector("inside", inside).cpu().numpy()
        if stds.shape != held.shape:
            raise InputError(
                f"std and inside must have one value each per point, got {len(stds)} and {len(held)} values."
            )
        if not np.isin(held, (0, 1)).all():
            raise InputError("inside must be True or False for every point, got numbers other than 0 and 1.")
        order = np.argsort(stds, kind="stable")
        stds, held = stds[order], held[order]
        groups = groups or min(10, max(2, len(stds) // 20))
        last = np.ceil(np.arange(1, groups + 1) * len(stds) / groups).astype(int) - 1
        ends = np.unique(np.searchsorted(stds, stds[np.maximum(last, 0)], side="right"))
        members = np.diff(ends, prepend=0)
        lower, upper = binomial_band(members, level)
        return cls(
            std=np.array([np.median(part) for part in np.split(stds, ends[:-1])]),
            coverage=np.array([part.mean() for part in np.split(held, ends[:-1])]),
            count=members,
            lower=lower,
            upper=upper,
            level=level,
            **labels,
        )

    @property
    def overall(self) -> float:
        """Share of all targets inside."""
        return float((self.coverage * self.count).sum() / self.count.sum())

    @property
    def off(self) -> np.ndarray:
        """Mask of the groups outside their range by chance."""
        return (self.coverage < self.lower) | (self.coverage > self.upper)

    @property
    def summary(self) -> str:
        """The main result in one line."""
        groups = format_count(len(self.count), "group")
        return f"{self.brief}; {int(self.off.sum())} of {groups} outside the range by chance"

    @property
    def brief(self) -> str:
        """The main number, for small panels."""
        return f"overall coverage {self.overall:.1%}".replace("%", " %")

    def draw(self, ax: style.Axes | None = None) -> style.Axes:
        """Draw into `ax` or a new figure, and return the axes."""
        ax, now = style.axes(ax), style.current()
        place, off = np.arange(len(self.count)), self.off
        steps = np.arange(len(self.count) + 1) - 0.5
        band: dict[str, Any] = {"color": now.faint, "alpha": 0.2, "linewidth": 0, "label": BY_CHANCE}
        ax.stairs(self.upper, steps, baseline=self.lower, fill=True, **band)
        nominal = f"nominal: {style.percent(self.level)}"
        ax.axhline(self.level, color=now.faint, linestyle="--", linewidth=1.2, label=nominal)
        ax.vlines(place, self.level, self.coverage, color=np.where(off, now.rival, now.model), linewidth=1.6, zorder=2)
        for which, colour, marker, label in style.looks_by_chance(off, "observed", "outside this range"):
            ax.plot(place[which], self.coverage[which], marker, color=colour, markersize=7, zorder=3, label=label)
        ax.set_xticks(place, _distinct_texts(self.std))
        ax.grid(visible=False, axis="x")
        style.percent_axis(ax.yaxis)
        least, most = min(self.lower.min(), self.coverage.min()), max(self.upper.max(), self.coverage.max())
        ax.set(xlim=(steps[0], steps[-1]), ylim=(max(0.0, least - 0.02), min(1.0, most + 0.02) + 0.005))
        ax.set_xlabel(style.with_unit("total standard deviation, median of each group", self.unit))
        ax.set_ylabel(f"coverage of the {style.percent(self.level)} interval")
        return style.finish(ax, self.title, self.summary, legend_columns=4 if off.any() else 3)


def _distinct_texts(values: np.ndarray) -> list[str]:
    """Return numbers as text with the fewest digits that make them different."""
    for digits in range(2, 6):
        texts = [format_number(float(value), digits) for value in values]
        if len({*texts}) == len(texts):
            break
    return texts


def _transform(values: Any) -> np.ndarray:
    """Return the transforms F(y), or raise an error if they are not between 0 and 1."""
    probabilities = number_vector("transform", values).detach().cpu().numpy()
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise InputError(
            f"transform must be probabilities F(y) from 0 to 1, got values from {probabilities.min()} to "
            f"{probabilities.max()}."
        )
    return probabilities
