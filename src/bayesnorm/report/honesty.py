"""The verdict on honesty: whether as many rows hold as error bars or probabilities promise.

A row holds if its target is inside its interval, or if its predicted class is right. The verdict looks at all rows and
at groups of rows, which the pictures draw as well.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import scipy

from ..plots import CHANCE, QUANTILES, CoveragePlot, ReliabilityDiagram, binomial_band
from ..words import capitalise, format_count, format_percent, too_few
from .classification import ClassificationTest
from .regression import RegressionTest
from .verdict import FEW, Grade, Scale, Verdict, limit

Groups = CoveragePlot | ReliabilityDiagram

Outcome = Literal["as promised", "close", "too low", "slightly low", "too high", "group low", "group high", "few rows"]

# A share below the promised one by more than chance, but by no more than this, is only slightly too low.
NEAR = 0.03

# A share this close to the promised one is good enough, also if the difference is significant: of all rows, or of a
# group of rows.
NEGLIGIBLE, NEGLIGIBLE_IN_GROUP = 0.01, 0.02

# Fewest rows in a group by error bar, and the most groups.
FEWEST_ROWS, MOST_GROUPS = 25, 6

# Number of rows from which rows are grouped into ten bins of confidence rather than five.
MANY = 500

# A band this much wider, in shares of rows, so that a share that is exactly at its end lies within.
ROUNDING = 1e-9

COVERAGE = "Error bars should be right for easy and for hard rows"
RELIABILITY = "Probabilities should match how often the model is right"

PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth"}


class Answer(NamedTuple):
    """The texts for an outcome, in which names in braces are filled in; "" for those of the grade."""

    grade: Grade
    headline: str
    clause: str
    short: str = ""
    next_step: str = ""


ANSWERS: dict[Outcome, Answer] = {
    "as promised": Answer("good", "{opening}, {should}.", "its {things} are honest"),
    "close": Answer("good", "{opening}, which is close enough.", "its {things} are honest"),
    "too low": Answer("poor", "{opening}: far {fewer}. {the_things} are {low}.", "its {things} are {low}"),
    "slightly low": Answer(
        "fair",
        "{opening}: slightly {fewer}. {the_things} are a little {low}.",
        "its {things} are a little {low}",
        "Nearly",
        "Expect slightly {worse} than the {things} say.",
    ),
    "too high": Answer(
        "fair",
        "{opening}: {more}. {the_things} are {needlessly_high}.",
        "its {things} are {needlessly_high}",
        "{high}",
        "Nothing is needed. {better} say.",
    ),
    "group low": Answer(
        "fair",
        "{on_average} {opening}. But {group}",
        "its {things} are {low} {where}",
        next_step="Expect {worse} than the {things} say {where}. Check these {cases} before you use them.",
    ),
    "group high": Answer(
        "fair",
        "{on_average} {opening}. But {group}",
        "its {things} are {high} {where}",
        next_step="Nothing is needed. {better} say {where}.",
    ),
    "few rows": Answer("fair", "{opening}{unclear}.", "{too_few} its {things} are honest", "Unclear"),
}

# What the names in braces stand for: for error bars, and for probabilities.
WORDS = {
    "things": ("error bars", "probabilities"),
    "the_things": ("The error bars", "Its probabilities"),
    "holds": ("inside", "right"),
    "should": ("as they should", "as it should be"),
    "low": ("too narrow", "too high"),
    "high": ("too wide", "too low"),
    "needlessly_high": ("wider than needed", "lower than they could be"),
    "fewer": ("too few", "fewer"),
    "more": ("more than promised", "more"),
    "worse": ("larger errors", "more mistakes"),
    "better": ("Errors are smaller than the error bars", "It is right more often than its probabilities"),
    "cases": ("predictions", "rows"),
    "on_average": ("On average yes:", "On average yes."),
    "group": ("{where} they contain {share}.", "{where}, it is right on {share} of {group_rows}."),
    "unclear": (". {rows} too few to tell whether that is right", ", but {rows} too few to tell"),
}


class OffGroup(NamedTuple):
    """A group of rows whose share differs significantly from the share that was promised.

    Args:
        where: Words for the group, such as "in the more uncertain half".
        rows: Number of rows in it.
        observed: Share of its rows that are inside their intervals, or right.
        gap: This share minus the one that the model promised.
    """

    where: str
    rows: int
    observed: float
    gap: float


class Promise(NamedTuple):
    """What a model promised for its test rows, and what these show.

    Args:
        held: Number of rows that hold.
        least, most: Fewest and most rows that hold if the promise is honest, apart from rare chance.
        gap: Share that holds minus the share that was promised.
        low: Share of rows at the left end of the line on the page.
        opening: Text that begins the headline, with both shares.
        detail: The numbers behind it.
    """

    held: int
    least: int
    most: int
    gap: float
    low: float
    opening: str
    detail: str

    def outcome(self, rows: int, off: list[OffGroup]) -> Outcome:
        """Judge whether as many rows hold as were promised. `off` are the groups in which this is not so."""
        significant = not self.least <= self.held <= self.most
        if significant and abs(self.gap) > NEGLIGIBLE:
            if self.held > self.most:
                return "too high"
            return "too low" if -self.gap > NEAR else "slightly low"
        if off:
            return "group low" if off[0].gap < 0 else "group high"
        if rows < FEW:
            return "few rows"
        return "close" if significant else "as promised"


def honesty(test: RegressionTest | ClassificationTest) -> Verdict:
    """Judge whether as many rows hold as were promised, on average and in groups of rows.

    By chance alone, the average is called dishonest in about 5 % of reports, and some group in at most 5 %: the answer
    to honest promises is other than "Yes" in at most about 10 %.
    """
    promise = _class_promise(test) if isinstance(test, ClassificationTest) else _interval_promise(test)
    rows, low, groups = len(test), promise.low, row_groups(test)
    off = material(off_groups(groups))
    names = {
        "opening": promise.opening,
        "rows": f"{format_count(rows, 'row')} {'is' if rows == 1 else 'are'}",
        "too_few": too_few(rows),
        "where": off[0].where if off else "",
        "share": f"{'only ' if off[0].gap < 0 else ''}{format_percent(off[0].observed)}" if off else "",
        "group_rows": format_count(off[0].rows, "row") if off else "",
    }
    names |= {name: texts[isinstance(test, ClassificationTest)].format(**names) for name, texts in WORDS.items()}
    outcome = promise.outcome(rows, off)
    answer = ANSWERS[outcome]
    headline, clause, short, next_step = (text.format(**names) for text in answer[1:])
    if off and (outcome == "slightly low" or (outcome == "too high" and off[0].gap < 0)):
        headline += f" {capitalise(names['group'])}"
    place, start, end = (
        limit((number / rows - low) / (1 - low)) for number in (promise.held, promise.least, promise.most)
    )
    scale = Scale(place, start, end, (f"{format_percent(low)} {names['holds']}", f"all {names['holds']}"))
    detail = f"{promise.detail} {group_words(groups)}".strip()
    question, short = f"Are its {names['things']} honest?", short and capitalise(short)
    return Verdict("honesty", question, answer.grade, headline, detail, scale, clause, short, next_step)


def _interval_promise(test: RegressionTest) -> Promise:
    """Count the targets inside their intervals. For honest intervals, this number is binomial.

    So honest intervals are called too narrow on average in at most 2.5 % of reports.
    """
    rows, inside = len(test), int(test.inside.sum())
    least, most = (int(bound) for bound in scipy.stats.binom.interval(CHANCE, rows, test.level))
    share = inside / rows
    return Promise(
        held=inside,
        least=least,
        most=most,
        gap=share - test.level,
        low=max(0.0, min(2 * test.level - 1, share - 0.05)),
        opening=f"{format_percent(test.level)} intervals contain {format_percent(share)} of the "
        f"{format_count(rows, 'held-out row')}",
        detail=f"{inside:,} of {rows:,} targets are inside their intervals. Honest intervals would contain between "
        f"{least:,} and {most:,} of them in 19 of 20 cases.",
    )


def _class_promise(test: ClassificationTest) -> Promise:
    """Count the right rows. For honest confidences p, this number has mean sum p and variance sum p (1 - p)."""
    rows, right, expected = len(test), int(test.right.sum()), float(test.confidence.sum())
    spread = QUANTILES[CHANCE] * math.sqrt(float((test.confidence * (1 - test.confidence)).sum()))
    # Rows are whole: a promise of 113.6 is kept by 113 as well as by 114.
    least = min(math.floor(expected), math.ceil(expected - spread))
    most = max(math.ceil(expected), math.floor(expected + spread))
    return Promise(
        held=right,
        least=least,
        most=most,
        gap=(right - expected) / rows,
        low=max(0.0, min(right, least) / rows - 0.05),
        opening=f"By its own probabilities it should be right on {format_percent(expected / rows)} of the held-out "
        f"rows. It is right on {format_percent(right / rows)}",
        detail=f"It is right on {right:,} of {format_count(rows, 'held-out row')}. Honest probabilities like these "
        f"would give between {least:,} and {most:,} in 19 of 20 cases.",
    )


def row_groups(test: RegressionTest | ClassificationTest) -> Groups:
    """Group rows by their error bars or confidence, with a range of shares that chance explains in all groups together.

    In 95 % of honest reports, all groups lie in their range. The error is shared equally among the groups (Bonferroni).
    The first rejection is then the same as Holm's, and the picture can draw the range.
    """
    plot: Groups
    promised: float | np.ndarray
    if isinstance(test, RegressionTest):
        number_of, promised = max(2, min(MOST_GROUPS, len(test) // FEWEST_ROWS)), test.level
        plot = CoveragePlot.from_arrays(test.std, test.inside, level=test.level, groups=number_of, title=COVERAGE)
    else:
        bins = 10 if len(test) >= MANY else 5
        plot = ReliabilityDiagram.from_predictive(test.predictive(), test.y, bins=bins, title=RELIABILITY)
        promised = np.minimum(plot.confidence, 1.0)
    lower, upper = binomial_band(plot.count, promised, 1 - (1 - CHANCE) / len(plot.count))
    return replace(plot, lower=lower - ROUNDING, upper=upper + ROUNDING)


def off_groups(groups: Groups) -> list[OffGroup]:
    """Return the groups outside their band: those below it first, then by the size of the gap."""
    if isinstance(groups, CoveragePlot):
        observed, promised = groups.coverage, np.full(len(groups.count), groups.level)
        where = _uncertainty_words(groups.count)
    else:
        observed, promised = groups.accuracy, groups.confidence
        where = [f"where it is about {format_percent(float(confidence))} confident" for confidence in groups.confidence]
    off = [
        OffGroup(where[at], int(groups.count[at]), float(observed[at]), float(observed[at]) - float(promised[at]))
        for at in np.flatnonzero(groups.off)
    ]
    return sorted(off, key=lambda group: (group.gap > 0, -abs(group.gap)))


def material(off: list[OffGroup]) -> list[OffGroup]:
    """Return the groups whose gap is large enough to matter, not only statistically significant."""
    return [group for group in off if abs(group.gap) > NEGLIGIBLE_IN_GROUP]


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
