"""The verdict on honesty: whether as many rows hold as error bars or probabilities promise.

A row holds if its target is inside its interval, or if its predicted class is right. The verdict looks at all rows and
at groups of rows, which the pictures draw as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import scipy

from ..plots import CHANCE, QUANTILES
from ..words import capitalise, format_count, format_percent, too_few
from .classification import ClassificationTest
from .groups import Groups, OffGroup, confidence_groups, coverage_groups, group_words, material, off_groups
from .regression import RegressionTest
from .verdict import FEW, Grade, Verdict, on_line

Outcome = Literal["as promised", "close", "too low", "slightly low", "too high", "group low", "group high", "few rows"]

# A share below the promised one by more than chance, but by no more than this, is only slightly too low.
NEAR = 0.03

# A share this close to the promised one is good enough, also if the difference is significant.
NEGLIGIBLE = 0.01


class Answer(NamedTuple):
    """The texts for an outcome, in which names in braces are filled in; "" for those of the grade."""

    grade: Grade
    headline: str
    clause: str
    short: str = ""
    next_step: str = ""


ERROR_BARS: dict[Outcome, Answer] = {
    "as promised": Answer("good", "{opening}, as they should.", "its error bars are honest"),
    "close": Answer("good", "{opening}, which is close enough.", "its error bars are honest"),
    "too low": Answer(
        "poor", "{opening}: far too few. The error bars are too narrow.", "its error bars are too narrow"
    ),
    "slightly low": Answer(
        "fair",
        "{opening}: slightly too few. The error bars are a little too narrow.",
        "its error bars are a little too narrow",
        "Nearly",
        "Expect slightly larger errors than the error bars say.",
    ),
    "too high": Answer(
        "fair",
        "{opening}: more than promised. The error bars are wider than needed.",
        "its error bars are wider than needed",
        "Too wide",
        "Nothing is needed. Errors are smaller than the error bars say.",
    ),
    "group low": Answer(
        "fair",
        "On average yes: {opening}. But {group}",
        "its error bars are too narrow {where}",
        next_step="Expect larger errors than the error bars say {where}. Check these predictions before you use them.",
    ),
    "group high": Answer(
        "fair",
        "On average yes: {opening}. But {group}",
        "its error bars are too wide {where}",
        next_step="Nothing is needed. Errors are smaller than the error bars say {where}.",
    ),
    "few rows": Answer(
        "fair",
        "{opening}. {rows} too few to tell whether that is right.",
        "{too_few} its error bars are honest",
        "Unclear",
    ),
}
PROBABILITIES: dict[Outcome, Answer] = {
    "as promised": Answer("good", "{opening}, as it should be.", "its probabilities are honest"),
    "close": Answer("good", "{opening}, which is close enough.", "its probabilities are honest"),
    "too low": Answer(
        "poor", "{opening}: far fewer. Its probabilities are too high.", "its probabilities are too high"
    ),
    "slightly low": Answer(
        "fair",
        "{opening}: slightly fewer. Its probabilities are a little too high.",
        "its probabilities are a little too high",
        "Nearly",
        "Expect slightly more mistakes than the probabilities say.",
    ),
    "too high": Answer(
        "fair",
        "{opening}: more. Its probabilities are lower than they could be.",
        "its probabilities are lower than they could be",
        "Too low",
        "Nothing is needed. It is right more often than its probabilities say.",
    ),
    "group low": Answer(
        "fair",
        "On average yes. {opening}. But {group}",
        "its probabilities are too high {where}",
        next_step="Expect more mistakes than the probabilities say {where}. Check these rows before you use them.",
    ),
    "group high": Answer(
        "fair",
        "On average yes. {opening}. But {group}",
        "its probabilities are too low {where}",
        next_step="Nothing is needed. It is right more often than its probabilities say {where}.",
    ),
    "few rows": Answer(
        "fair", "{opening}, but {rows} too few to tell.", "{too_few} its probabilities are honest", "Unclear"
    ),
}


@dataclass(frozen=True)
class Promise:
    """What a model promised for its test rows, and what these show.

    Args:
        answers: The texts for every outcome.
        held, rows: Number of rows that hold, and of all rows.
        least, most: Fewest and most rows that hold if the promise is honest, apart from rare chance.
        gap: Share that holds minus the share that was promised.
        groups: The same for groups of rows.
        opening: Text that begins the headline, with both shares.
        group: Text about a group of rows.
        detail: The numbers behind it.
        low: Share of rows at the left end of the line on the page.
    """

    answers: dict[Outcome, Answer]
    held: int
    rows: int
    least: int
    most: int
    gap: float
    groups: Groups
    opening: str
    group: str
    detail: str
    low: float

    def outcome(self, off: list[OffGroup]) -> Outcome:
        """Judge whether as many rows hold as were promised. `off` are the groups in which this is not so."""
        significant = not self.least <= self.held <= self.most
        if significant and abs(self.gap) > NEGLIGIBLE:
            if self.held > self.most:
                return "too high"
            return "too low" if -self.gap > NEAR else "slightly low"
        if off:
            return "group low" if off[0].gap < 0 else "group high"
        if self.rows < FEW:
            return "few rows"
        return "close" if significant else "as promised"

    def group_words(self, group: OffGroup) -> str:
        """Say how many rows of a group hold."""
        share = f"{'only ' if group.gap < 0 else ''}{format_percent(group.observed)}"
        return self.group.format(where=group.where, share=share, rows=format_count(group.rows, "row"))


def honesty(test: RegressionTest | ClassificationTest) -> Verdict:
    """Judge whether as many rows hold as were promised, on average and in groups of rows.

    By chance alone, the average is called dishonest in about 5 % of reports, and some group in at most 5 %: the answer
    to honest promises is other than "Yes" in at most about 10 %.
    """
    if isinstance(test, RegressionTest):
        promise, question, holds = _interval_promise(test), "Are its error bars honest?", "inside"
    else:
        promise, question, holds = _class_promise(test), "Are its probabilities honest?", "right"
    rows, low, off = promise.rows, promise.low, material(off_groups(promise.groups))
    outcome = promise.outcome(off)
    names = {
        "opening": promise.opening,
        "where": off[0].where if off else "",
        "group": promise.group_words(off[0]) if off else "",
        "rows": f"{format_count(rows, 'row')} {'is' if rows == 1 else 'are'}",
        "too_few": too_few(rows),
    }
    answer = promise.answers[outcome]
    headline = answer.headline.format(**names)
    if off and (outcome == "slightly low" or (outcome == "too high" and off[0].gap < 0)):
        headline += f" {capitalise(names['group'])}"
    place, start, end = (
        on_line((number / rows - low) / (1 - low)) for number in (promise.held, promise.least, promise.most)
    )
    return Verdict(
        topic="honesty",
        question=question,
        grade=answer.grade,
        headline=headline,
        detail=f"{promise.detail} {group_words(promise.groups)}".strip(),
        place=place,
        span=(start, end),
        ends=(f"{format_percent(low)} {holds}", f"all {holds}"),
        clause=answer.clause.format(**names),
        short=answer.short,
        next_step=answer.next_step.format(**names),
    )


def _interval_promise(test: RegressionTest) -> Promise:
    """Count the targets inside their intervals. For honest intervals, this number is binomial.

    So honest intervals are called too narrow on average in at most 2.5 % of reports.
    """
    rows, inside = len(test), int(test.inside.sum())
    least, most = (int(bound) for bound in scipy.stats.binom.interval(CHANCE, rows, test.level))
    share = inside / rows
    return Promise(
        answers=ERROR_BARS,
        held=inside,
        rows=rows,
        least=least,
        most=most,
        gap=share - test.level,
        groups=coverage_groups(test),
        opening=f"{format_percent(test.level)} intervals contain {format_percent(share)} of the "
        f"{format_count(rows, 'held-out row')}",
        group="{where} they contain {share}.",
        detail=f"{inside:,} of {rows:,} targets are inside their intervals. Honest intervals would contain between "
        f"{least:,} and {most:,} of them in 19 of 20 cases.",
        low=max(0.0, min(2 * test.level - 1, share - 0.05)),
    )


def _class_promise(test: ClassificationTest) -> Promise:
    """Count the right rows. For honest confidences p, this number has mean sum p and variance sum p (1 - p)."""
    rows, right, expected = len(test), int(test.right.sum()), float(test.confidence.sum())
    spread = QUANTILES[CHANCE] * math.sqrt(float((test.confidence * (1 - test.confidence)).sum()))
    # Rows are whole: a promise of 113.6 is kept by 113 as well as by 114.
    least = min(math.floor(expected), math.ceil(expected - spread))
    most = max(math.ceil(expected), math.floor(expected + spread))
    return Promise(
        answers=PROBABILITIES,
        held=right,
        rows=rows,
        least=least,
        most=most,
        gap=(right - expected) / rows,
        groups=confidence_groups(test),
        opening=f"By its own probabilities it should be right on {format_percent(expected / rows)} of the held-out "
        f"rows. It is right on {format_percent(right / rows)}",
        group="{where}, it is right on {share} of {rows}.",
        detail=f"It is right on {right:,} of {format_count(rows, 'held-out row')}. Honest probabilities like these "
        f"would give between {least:,} and {most:,} in 19 of 20 cases.",
        low=max(0.0, min(right, least) / rows - 0.05),
    )
