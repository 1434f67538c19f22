"""The verdict on honesty: whether as many rows hold as error bars or probabilities promise.

A row holds if its target is inside its interval, or if its predicted class is right. The verdict looks at all rows and
at groups of rows (`row_groups.py`), some of which the pictures draw as well.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import scipy

from ..plots import CHANCE, QUANTILES
from ..words import capitalise, format_count, format_percent, too_few
from .classification import ClassificationTest
from .regression import RegressionTest
from .row_groups import Labels, RowGroup, RowGroups
from .verdict import FEW, Grade, Scale, Verdict, limit

Outcome = Literal[
    "as promised",
    "close",
    "too low",
    "slightly low",
    "too high",
    "half low",
    "group low",
    "group high",
    "few rows",
]

# A share below the promised one by more than chance, but by no more than this, is only slightly too low.
NEAR = 0.03

# A share of all rows this close to the promised one is good enough, also if the difference is significant.
NEGLIGIBLE = 0.02

# If the 50 % intervals of all rows contain this much less, the error bars are not honest, whatever their ends.
FAR = 0.1


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
    "half low": Answer(
        "poor", "{opening}. But {group} {the_things} are {low} around the prediction.", "its {things} are {low}"
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

    def outcome(self, rows: int, off: list[RowGroup]) -> Outcome:
        """Judge whether as many rows hold as were promised. `off` are the groups in which this is not so."""
        significant = not self.least <= self.held <= self.most
        if significant and abs(self.gap) > NEGLIGIBLE:
            if self.held > self.most:
                return "too high"
            return "too low" if -self.gap > NEAR else "slightly low"
        if any(group.rows == rows and group.gap < -FAR for group in off):
            return "half low"
        if off:
            return "group low" if off[0].gap < 0 else "group high"
        if rows < FEW:
            return "few rows"
        return "close" if significant else "as promised"


def honesty(test: RegressionTest | ClassificationTest, labels: Labels | None = None) -> Verdict:
    """Judge whether as many rows hold as were promised, on average and in groups of rows.

    By chance alone, the average is called dishonest in about 5 % of reports, and some group in at most 5 %: the answer
    to honest promises is other than "Yes" in at most about 10 %.

    Args:
        test: The held-out rows.
        labels: The categories of each row, by the name of their column.
    """
    promise = _class_promise(test) if isinstance(test, ClassificationTest) else _interval_promise(test)
    rows, low, groups = len(test), promise.low, RowGroups.from_test(test, labels)
    off = groups.material
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
    detail = f"{promise.detail} {groups.words}".strip()
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
