"""The form of a verdict, and the limits that verdicts share.

Every verdict allows for chance: what few rows cannot show is called neither good nor poor. It also looks at the size
of a gain: a gain that is statistically significant but small is called small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Grade = Literal["good", "fair", "poor"]
Topic = Literal["prediction", "honesty", "usefulness"]

# Share of the baseline's errors (variance, or wrong rows) that a good model has to remove.
HALF = 0.5

# A model whose errors are smaller than the baseline's by less than this is only a little better.
SMALL = 0.1

# Uncertainty that achieves less than this share of the possible gain tells only little about single rows.
LITTLE = 0.2

# Error bars that lower the CRPS by less than this, against one constant error bar, tell only little either.
LITTLE_CRPS = 0.03

# With fewer rows, no share is called honest: almost any share would pass.
FEW = 30

WORDS: dict[Grade, str] = {"good": "Yes", "fair": "Partly", "poor": "No"}
SYMBOLS: dict[Grade, str] = {"good": "✓", "fair": "!", "poor": "✗"}


class Scale(NamedTuple):
    """A line from 0 to 1 on the page, on which a model has a place.

    Args:
        place: Place of the model.
        start, end: The part of the line where it should be.
        ends: Words for 0 and 1 on the line.
    """

    place: float
    start: float
    end: float
    ends: tuple[str, str]


@dataclass(frozen=True)
class Verdict:
    """One of the three verdicts on a model.

    Args:
        topic: What it is about.
        question: The question that it answers.
        grade: "good", "fair" or "poor".
        headline: One or two sentences with the number and its baseline.
        detail: The numbers behind it.
        scale: Where the model is on a line, and where it should be.
        clause: The same as a part of a sentence, for the advice on the whole model.
        short: A short answer; "" for that of the grade.
        next_step: What to do next, in whole sentences.
    """

    topic: Topic
    question: str
    grade: Grade
    headline: str
    detail: str
    scale: Scale
    clause: str
    short: str = ""
    next_step: str = ""

    @property
    def word(self) -> str:
        """The short answer to the question."""
        return self.short or WORDS[self.grade]

    @property
    def symbol(self) -> str:
        """The sign that the page shows beside the answer."""
        return SYMBOLS[self.grade]


def limit(value: float) -> float:
    """Return the value, limited to the range from 0 to 1."""
    return min(1.0, max(0.0, float(value)))
