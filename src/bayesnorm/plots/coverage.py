"""A plot of how many targets intervals hold, by groups of uncertainty: for easy points and for hard ones alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..arguments import require_whole
from ..errors import InputError
from ..metrics import pit
from ..metrics.checks import finite_std, number_vector, regression_targets
from ..predictive import RegressionPredictive
from ..predictive.regression import require_level
from . import style
from .binomial import binomial_band
from .readable_numbers import count, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Intervals should hold at any uncertainty, not only on average"


@dataclass(frozen=True)
class CoveragePlot:
    """Coverage of groups of points, from the least to the most uncertain, each (groups,).

    Args:
        std: The groups' median predicted standard deviation.
        coverage: Share of each group's targets inside the interval.
        count: Number of points in the group.
        lower: Least coverage that chance alone explains (95 %, group by group).
        upper: Greatest such coverage.
        level: Probability of the central interval.
        unit: Unit of the target.
        title: Title, which says what one should see.
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
    def of(
        cls,
        predictive: RegressionPredictive,
        y: Any,
        *,
        level: float = 0.9,
        groups: int | None = None,
        unit: str | None = None,
        title: str = TITLE,
    ) -> Self:
        """Compare predictions with their targets.

        Args:
            predictive: Predictions on test data.
            y: Test targets.
            level: Probability of the central interval to look at.
            groups: Number of groups, of equally many points; None for up to ten, of 20 points or more. Points of equal
                uncertainty stay together.
            unit: Unit of the target.
            title: Title, which says what one should see.
        """
        require_level(level)
        regression_targets(predictive, y)
        inside = (pit(predictive, y).flatten() - 0.5).abs() <= level / 2
        return cls.of_arrays(
            finite_std(predictive).flatten(), inside, level=level, groups=groups, unit=unit, title=title
        )

    @classmethod
    def of_arrays(
        cls,
        std: Any,
        inside: Any,
        *,
        level: float,
        groups: int | None = None,
        unit: str | None = None,
        title: str = TITLE,
    ) -> Self:
        """Take predicted standard deviations, and whether each target lies in its interval of that level."""
        require_level(level)
        if groups is not None:
            groups = require_whole("groups", groups)
        stds = number_vector("std", std, infinite=False).detach().cpu().numpy()
        held = number_vector("inside", inside).cpu().numpy()
        if stds.shape != held.shape:
            raise InputError(f"std and inside: {len(stds)} and {len(held)} values; one of each per row would work.")
        if not np.isin(held, (0, 1)).all():
            raise InputError("inside: holds numbers other than 0 and 1; True and False would work.")
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
            unit=unit,
            title=title,
        )

    @property
    def overall(self) -> float:
        """Share of all targets inside."""
        return float((self.coverage * self.count).sum() / self.count.sum())

    @property
    def summary(self) -> str:
        """One line of text that says what was measured."""
        off = int(((self.coverage < self.lower) | (self.coverage > self.upper)).sum())
        return f"{self.brief}; {off} of {count(len(self.count), 'group')} farther off than chance explains"

    @property
    def brief(self) -> str:
        """The main number, as text for small panels."""
        return f"overall {self.overall:.1%}".replace("%", " %")

    def draw(self, ax: Axes | None = None) -> Axes:
        """Draw into `ax`, or into a new figure."""
        ax, now = style.axes(ax), style.current()
        place = np.arange(len(self.count))
        steps = np.arange(len(self.count) + 1) - 0.5
        label = "explained by chance (95 %)"
        ax.stairs(
            self.upper, steps, baseline=self.lower, fill=True, color=now.faint, alpha=0.2, linewidth=0, label=label
        )
        nominal = f"asked for: {style.percent(self.level)}"
        ax.axhline(self.level, color=now.faint, linestyle="--", linewidth=1.2, label=nominal)
        off = (self.coverage < self.lower) | (self.coverage > self.upper)
        ax.vlines(place, self.level, self.coverage, color=np.where(off, now.rival, now.model), linewidth=1.6, zorder=2)
        for which, colour, marker, label in (
            (~off, now.model, "o", "observed"),
            (off, now.rival, "D", "off by more than chance"),
        ):
            if which.any():
                ax.plot(place[which], self.coverage[which], marker, color=colour, markersize=7, zorder=3, label=label)
        ax.set_xticks(place, _told_apart(self.std))
        ax.grid(visible=False, axis="x")
        style.percent_axis(ax.yaxis)
        least, most = min(self.lower.min(), self.coverage.min()), max(self.upper.max(), self.coverage.max())
        ax.set_ylim(max(0.0, least - 0.02), min(1.0, most + 0.02) + 0.005)
        ax.set_xlim(steps[0], steps[-1])
        ax.set_xlabel(style.with_unit("predicted standard deviation, median of each group", self.unit))
        ax.set_ylabel(f"targets in their {style.percent(self.level)} interval")
        style.headline(ax, self.title, self.summary)
        style.legend_below(ax, 4 if off.any() else 3)
        return ax


def _told_apart(values: np.ndarray) -> list[str]:
    """Write numbers with as few digits as tell them apart."""
    for digits in range(2, 6):
        texts = [number(float(value), digits) for value in values]
        if len({*texts}) == len(texts):
            break
    return texts
