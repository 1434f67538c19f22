"""Groups of held-out rows, in each of which as many rows should hold as error bars or probabilities promise.

Rows are grouped by their uncertainty, by their prediction, and by the categories of each column of text. Intervals are
also tested at a probability of 50 %, for all rows and for each group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..plots import CHANCE, CoveragePlot, ReliabilityDiagram, binomial_band
from ..words import format_count, format_percent, truncate
from .classification import ClassificationTest
from .contents import Report
from .regression import Array, RegressionTest

Drawn = CoveragePlot | ReliabilityDiagram
Labels = Mapping[str, Sequence[object]]
"""The categories of each row, by the name of their column."""

# Fewest rows in a group, and the most groups by uncertainty or by prediction.
FEWEST_ROWS, MOST_GROUPS = 25, 6

# Number of rows from which rows are grouped into ten bins of confidence rather than five.
MANY = 500

# Columns of categories that are tested at most, and categories of each.
MOST_COLUMNS, MOST_CATEGORIES = 30, 20

# The second probability at which intervals are tested.
HALF = 0.5

# A share this close to the promised one is good enough in a group, also if the difference is significant: for the
# report's own intervals and for probabilities, and for intervals of 50 %.
NEGLIGIBLE, NEGLIGIBLE_AT_HALF = 0.05, 0.08

# A band this much wider, in shares of rows, so that a share that is exactly at its end lies within.
ROUNDING = 1e-9

# Most characters of a name or category in a sentence.
LONGEST = 40

COVERAGE = "Error bars should be right for easy and for hard rows"
RELIABILITY = "Probabilities should match how often the model is right"

PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth"}


class RowGroup(NamedTuple):
    """A group of rows, with the share of them that holds.

    Args:
        where: Words for the group, such as "in the most uncertain sixth".
        rows: Number of rows in it.
        observed: Share of its rows that are inside their intervals, or right.
        promised: The share that the model promised.
        tolerance: Smallest difference between the two that matters.
        lower, upper: Ends of the range that chance explains, in all groups together.
    """

    where: str
    rows: int
    observed: float
    promised: float
    tolerance: float = NEGLIGIBLE
    lower: float = 0.0
    upper: float = 1.0

    @property
    def gap(self) -> float:
        """The share that holds minus the share that was promised."""
        return self.observed - self.promised

    @property
    def off(self) -> bool:
        """Whether the share differs from the promised one by more than chance explains."""
        return not self.lower <= self.observed <= self.upper

    @property
    def material(self) -> bool:
        """Whether it differs, and by so much that it matters."""
        return self.off and abs(self.gap) > self.tolerance


@dataclass(frozen=True)
class RowGroups:
    """All groups of the test rows.

    In 95 % of honest reports, all groups lie in their range. The error is shared equally among the groups (Bonferroni).
    The first rejection is then the same as Holm's, and the picture can draw the range.

    Args:
        groups: The groups; those that the picture draws come first.
        drawn: The picture of the groups by uncertainty, with the range of each group.
        by: What rows are grouped by, such as "by error bar".
    """

    groups: tuple[RowGroup, ...]
    drawn: Drawn
    by: tuple[str, ...]

    @classmethod
    def from_test(cls, test: RegressionTest | ClassificationTest, labels: Labels | None = None) -> RowGroups:
        """Group the rows of a test.

        Args:
            test: The test.
            labels: The categories of each row, by the name of their column.
        """
        all_labels = list((labels or {}).items())[:MOST_COLUMNS]
        labels = {name: values for name, values in all_labels if any(_categories({name: values}))}
        drawn: Drawn
        if isinstance(test, RegressionTest):
            drawn, groups = _coverage(test, test.std, test.inside, test.level), [*_interval_groups(test, labels)]
            by = ["by error bar", "by prediction"]
        else:
            bins = 10 if len(test) >= MANY else 5
            drawn = ReliabilityDiagram.from_predictive(test.predictive(), test.y, bins=bins, title=RELIABILITY)
            groups, by = [*_class_groups(test, drawn, labels)], ["by probability", "by predicted class"]
        count, promised = (np.array([getattr(group, name) for group in groups]) for name in ("rows", "promised"))
        lower, upper = binomial_band(count, np.minimum(promised, 1.0), 1 - (1 - CHANCE) / len(groups))
        lower, upper = lower - ROUNDING, upper + ROUNDING
        shown = len(drawn.count)
        return cls(
            tuple(
                group._replace(lower=float(low), upper=float(high))
                for group, low, high in zip(groups, lower, upper, strict=True)
            ),
            replace(drawn, lower=lower[:shown], upper=upper[:shown]),
            (*by, *(f"by {truncate(name, LONGEST)}" for name in labels)),
        )

    @property
    def material(self) -> list[RowGroup]:
        """The groups that are off by so much that it matters: those with too few rows first, then by the size."""
        return sorted(
            (group for group in self.groups if group.material),
            key=lambda group: (group.gap > 0, -abs(group.gap) / group.tolerance),
        )

    @property
    def words(self) -> str:
        """A sentence about how many groups deviate."""
        return _words(self.groups, ", ".join(self.by))

    @property
    def drawn_words(self) -> str:
        """The same about the groups that the picture draws."""
        intervals = isinstance(self.drawn, CoveragePlot)
        order = "from small to large error bars" if intervals else "from low to high confidence"
        return _words(self.groups[: len(self.drawn.count)], order)


def row_labels(report: Report) -> dict[str, list[object]]:
    """Return the categories of each held-out row, by the name of their column."""
    places = [(place, column.name) for place, column in enumerate(report.table.columns) if column.kind == "category"]
    return {name: [row[place] for row in report.rows.values] for place, name in places[:MOST_COLUMNS]}


def _coverage(test: RegressionTest, order_by: Array, inside: NDArray[np.bool_], level: float) -> CoveragePlot:
    """Return the coverage of groups of rows, in the order of some values."""
    number_of = max(2, min(MOST_GROUPS, len(test) // FEWEST_ROWS))
    return CoveragePlot.from_arrays(order_by, inside, level=level, groups=number_of, title=COVERAGE)


def _interval_groups(test: RegressionTest, labels: Labels) -> Iterator[RowGroup]:
    """Yield all groups of a regression; those by uncertainty at the report's own level come first."""
    at_half = np.abs(test.pit - 0.5) <= HALF / 2
    levels = [(test.level, test.inside, "", NEGLIGIBLE)]
    if test.level != HALF:
        levels.append((HALF, at_half, f"at a probability of {format_percent(HALF)}", NEGLIGIBLE_AT_HALF))
    for level, inside, at_level, tolerance in levels:
        for order_by, names in ((test.std, _uncertainty_words), (test.mean, _prediction_words)):
            plot = _coverage(test, order_by, inside, level)
            if order_by is test.mean and len(plot.count) == 1:
                continue  # all predictions are equal
            for where, rows, share in zip(names(plot.count), plot.count, plot.coverage, strict=True):
                yield RowGroup(f"{at_level} {where}".strip(), int(rows), float(share), level, tolerance)
        for where, which in _categories(labels):
            yield RowGroup(
                f"{at_level} {where}".strip(), int(which.sum()), float(inside[which].mean()), level, tolerance
            )
        if at_level:
            yield RowGroup(at_level, len(test), float(inside.mean()), level, tolerance)


def _class_groups(test: ClassificationTest, drawn: ReliabilityDiagram, labels: Labels) -> Iterator[RowGroup]:
    """Yield all groups of a classification; those by confidence come first."""
    for confidence, rows, accuracy in zip(drawn.confidence, drawn.count, drawn.accuracy, strict=True):
        where = f"where it is about {format_percent(float(confidence))} confident"
        yield RowGroup(where, int(rows), float(accuracy), float(confidence))
    predicted = {name: test.label == number for number, name in enumerate(test.classes)}
    parts = [(f"where it predicts “{truncate(name, LONGEST)}”", which) for name, which in predicted.items()]
    for where, which in (*parts, *_categories(labels)):
        if FEWEST_ROWS <= which.sum() < len(test):
            promised = float(test.confidence[which].mean())
            yield RowGroup(where, int(which.sum()), float(test.right[which].mean()), promised)


def _categories(labels: Labels) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield words and a mask for the most frequent categories of each column, if they have enough rows."""
    for name, values in labels.items():
        texts = np.array([None if value is None else str(value) for value in values], dtype=object)
        present = texts[[text is not None for text in texts]]
        categories, counts = np.unique(present.astype(str), return_counts=True)
        for at in np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]:
            if FEWEST_ROWS <= counts[at] < len(texts):
                where = f"where {truncate(name, LONGEST)} is “{truncate(str(categories[at]), LONGEST)}”"
                yield where, texts == categories[at]


def _words(groups: Sequence[RowGroup], by: str) -> str:
    """Say in a sentence how many groups deviate by more than chance explains."""
    off, number_of = [group for group in groups if group.off], len(groups)
    if number_of < 2:
        return ""
    if not off:
        return f"None of the {number_of} groups of rows, {by}, deviates by more than chance explains."
    verb = "deviates" if len(off) == 1 else "deviate"
    text = f"{len(off)} of {number_of} groups of rows, {by}, {verb} by more than chance explains"
    if not any(group.material for group in off):
        largest = max(abs(group.gap) for group in off)
        text += f", but by no more than {100 * largest:.1f} percentage points"
    return f"{text}."


def _uncertainty_words(rows: NDArray[np.int64]) -> list[str]:
    """Name groups of rows from the least to the most uncertain."""
    groups = len(rows)
    part = _part(rows)
    if groups == 2 and part:
        return ["in the less uncertain half", "in the more uncertain half"]
    names = [f"in group {place + 1} of {groups} (from least to most uncertain)" for place in range(groups)]
    for at, which in ((0, "least"), (-1, "most")):
        names[at] = f"in the {which} uncertain {part}"
        if part is None:
            names[at] = f"in the {format_count(int(rows[at]), f'{which} uncertain row')}"
    return names


def _prediction_words(rows: NDArray[np.int64]) -> list[str]:
    """Name groups of rows from the smallest to the largest prediction."""
    groups, part = len(rows), _part(rows)
    names = [f"in group {place + 1} of {groups} (from small to large predictions)" for place in range(groups)]
    for at, which in ((0, "smallest"), (-1, "largest")):
        fraction = part or format_count(int(rows[at]), "row")
        names[at] = f"in the {fraction} with the {which} predictions"
    return names


def _part(rows: NDArray[np.int64]) -> str | None:
    """Return the word for an equal part of the rows; None if the groups differ in size."""
    return PARTS.get(len(rows)) if rows.max() - rows.min() <= 1 else None
