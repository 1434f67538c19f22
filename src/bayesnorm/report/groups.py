"""Groups of held-out rows in which error bars or probabilities are checked, for verdicts and pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ..plots import CHANCE, CoveragePlot, ReliabilityDiagram, binomial_band
from ..words import format_count, format_percent
from .classification import ClassificationTest
from .regression import RegressionTest

Groups = CoveragePlot | ReliabilityDiagram
AnyGroups = TypeVar("AnyGroups", CoveragePlot, ReliabilityDiagram)

# A group whose share is this close to the promised one is good enough, also if the difference is significant.
CLOSE = 0.02

# Fewest rows in a group by error bar, and the most groups.
FEWEST_ROWS, MOST_GROUPS = 25, 6

# Number of rows from which rows are grouped into ten bins of confidence rather than five.
MANY = 500

# A band this much wider, in shares of rows, so that a share that is exactly at its end lies within.
ROUNDING = 1e-9

COVERAGE = "Error bars should be right for easy and for hard rows"
RELIABILITY = "Probabilities should match how often the model is right"

PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth"}


@dataclass(frozen=True)
class OffGroup:
    """A group of rows whose share differs significantly from the share that was promised.

    Args:
        where: Words for the group, such as "in the more uncertain half".
        rows: Number of rows in it.
        observed: Share of its rows that are inside their intervals, or right.
        promised: Share that the model promised.
    """

    where: str
    rows: int
    observed: float
    promised: float

    @property
    def gap(self) -> float:
        """The observed share minus the promised one."""
        return self.observed - self.promised


def coverage_groups(test: RegressionTest) -> CoveragePlot:
    """Group rows by their error bars, with the range of coverage that chance explains in all groups together."""
    groups = max(2, min(MOST_GROUPS, len(test) // FEWEST_ROWS))
    plot = CoveragePlot.from_arrays(test.std, test.inside, level=test.level, groups=groups, title=COVERAGE)
    return _with_band(plot, plot.level)


def confidence_groups(test: ClassificationTest) -> ReliabilityDiagram:
    """Group rows by their confidence, with the range of accuracy that chance explains in all groups together."""
    plot = ReliabilityDiagram.from_predictive(
        test.predictive(), test.y, bins=10 if len(test) >= MANY else 5, title=RELIABILITY
    )
    return _with_band(plot, np.minimum(plot.confidence, 1.0))


def off_groups(groups: Groups) -> list[OffGroup]:
    """Return the groups outside their band: those below it first, then by the size of the gap."""
    if isinstance(groups, CoveragePlot):
        observed, promised = groups.coverage, np.full(len(groups.count), groups.level)
        where = _uncertainty_words(groups.count)
    else:
        observed, promised = groups.accuracy, groups.confidence
        where = [f"where it is about {format_percent(float(confidence))} confident" for confidence in groups.confidence]
    off = [
        OffGroup(where[at], int(groups.count[at]), float(observed[at]), float(promised[at]))
        for at in np.flatnonzero(groups.off)
    ]
    return sorted(off, key=lambda group: (group.gap > 0, -abs(group.gap)))


def material(off: list[OffGroup]) -> list[OffGroup]:
    """Return the groups whose gap is large enough to matter, not only statistically significant."""
    return [group for group in off if abs(group.gap) > CLOSE]


def group_words(groups: Groups) -> str:
    """Say in a sentence how many groups deviate by more than chance explains."""
    order = "from small to large error bars" if isinstance(groups, CoveragePlot) else "from low to high confidence"
    off, number_of = off_groups(groups), len(groups.count)
    if number_of < 2:
        return ""
    if not off:
        return f"None of the {number_of} groups of rows, {order}, deviates by more than chance explains."
    verb = "deviates" if len(off) == 1 else "deviate"
    text = f"{len(off)} of {number_of} groups of rows, {order}, {verb} by more than chance explains"
    if not material(off):
        largest = max(abs(group.gap) for group in off)
        text += f", but by no more than {100 * largest:.1f} percentage points"
    return f"{text}."


def _with_band(plot: AnyGroups, promised: float | np.ndarray) -> AnyGroups:
    """Return the plot with a range of every group's share, in which all groups lie in 95 % of honest reports.

    The error is shared equally among the groups (Bonferroni). The first rejection is then the same as Holm's, and the
    picture can draw the range.
    """
    lower, upper = binomial_band(plot.count, promised, 1 - (1 - CHANCE) / len(plot.count))
    return replace(plot, lower=lower - ROUNDING, upper=upper + ROUNDING)


def _uncertainty_words(rows: np.ndarray) -> list[str]:
    """Name groups of rows from the least to the most uncertain."""
    groups = len(rows)
    part = PARTS.get(groups) if rows.max() - rows.min() <= 1 else None
    if groups == 2 and part:
        return ["in the less uncertain half", "in the more uncertain half"]
    names = [f"in group {place + 1} of {groups} (from least to most uncertain)" for place in range(groups)]
    for at, which in ((0, "least"), (-1, "most")):
        names[at] = f"in the {which} uncertain {part}"
        if part is None:
            names[at] = f"in the {format_count(int(rows[at]), f'{which} uncertain row')}"
    return names
