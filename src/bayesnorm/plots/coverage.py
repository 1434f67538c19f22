"""A plot of the coverage of intervals by groups of total standard deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..arguments import require_whole
from ..errors import InputError
from ..metrics import finite_std, number_vector, pit, regression_targets
from ..predictive import RegressionPredictive, require_level
from ..words import format_count, format_number
from . import style
from .calibration import BY_CHANCE, binomial_band

TITLE = "Coverage should be right for small and large standard deviations"


@dataclass(frozen=True)
class CoveragePlot:
    """Coverage of groups of points, sorted by total standard deviation, each (groups,).

    Args:
        std: Median total standard deviation of each group.
        coverage: Share of each group's targets inside the interval.
        count: Number of points in each group.
        lower: Lower end of the 95 % range by chance, for every group.
        upper: Upper end of this range.
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
    title: str = TITLE

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
        ax.set_xticks(place, _told_apart(self.std))
        ax.grid(visible=False, axis="x")
        style.percent_axis(ax.yaxis)
        least, most = min(self.lower.min(), self.coverage.min()), max(self.upper.max(), self.coverage.max())
        ax.set(xlim=(steps[0], steps[-1]), ylim=(max(0.0, least - 0.02), min(1.0, most + 0.02) + 0.005))
        ax.set_xlabel(style.with_unit("total standard deviation, median of each group", self.unit))
        ax.set_ylabel(f"coverage of the {style.percent(self.level)} interval")
        return style.finish(ax, self.title, self.summary, legend_columns=4 if off.any() else 3)


def _told_apart(values: np.ndarray) -> list[str]:
    """Return numbers as text with the fewest digits that make them different."""
    for digits in range(2, 6):
        texts = [format_number(float(value), digits) for value in values]
        if len({*texts}) == len(texts):
            break
    return texts
