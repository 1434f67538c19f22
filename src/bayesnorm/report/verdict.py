"""Verdicts in plain words, and how strict they are.

Every judgement allows for chance: what few rows cannot show is called neither good nor poor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .words import count

Grade = Literal["good", "fair", "poor"]
Topic = Literal["prediction", "honesty", "usefulness"]
Words = tuple[str, str]

# Share of a guess's errors (variance, or wrong rows) that a good model has to take away.
HALF = 0.5

# A share that is off by more than chance, but by no more than this, is only fairly wrong.
NEAR = 0.03

# A share this close to what was promised needs no further words.
CLOSE = 0.02

# Below so many rows no share is called honest: almost any would pass.
FEW = 30

# Percent of the way to perfect uncertainty that are hardly worth the name, however clear they are.
LITTLE = 5.0

QUESTIONS: dict[Topic, str] = {
    "prediction": "Does it predict?",
    "honesty": "Is its uncertainty honest?",
    "usefulness": "Is its uncertainty useful?",
}
WORDS: dict[Grade, str] = {"good": "Yes", "fair": "With care", "poor": "No"}
SYMBOLS: dict[Grade, str] = {"good": "✓", "fair": "!", "poor": "✗"}


@dataclass(frozen=True)
class Verdict:
    """One of the three verdicts on a model.

    Args:
        topic: The question that it answers.
        grade: "good", "fair" or "poor".
        headline: A short sentence.
        detail: The numbers behind it.
        place: Place of the model on a line from 0 to 1.
        span: The part of that line where it should stand.
        ends: Words for 0 and 1 on that line.
        caution: Part of a sentence that says what to be careful about where it is "fair".
        next_step: The rest of a sentence "Next: ...".
    """

    topic: Topic
    grade: Grade
    headline: str
    detail: str
    place: float
    span: tuple[float, float]
    ends: tuple[str, str]
    caution: str = ""
    next_step: str = ""

    @property
    def question(self) -> str:
        return QUESTIONS[self.topic]

    @property
    def word(self) -> str:
        return WORDS[self.grade]

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.grade]


def on_line(value: float) -> float:
    """Return the value kept between 0 and 1."""
    return min(1.0, max(0.0, float(value)))


def judge_share(
    held: int, least: int, most: int, rows: int, off: float, kept: str, too_few: Words, too_many: Words
) -> tuple[Grade, str, str]:
    """Judge whether as many rows hold as were promised; return the grade, words for it, and the caution.

    Args:
        held: Number of rows that hold.
        least, most: Fewest and most of them that chance alone explains.
        rows: Number of all rows.
        off: Share that holds, less the share that was promised.
        kept: Words for a promise kept.
        too_few: Words for far too few rows, and for a little too few.
        too_many: Words for more rows than promised, and the caution.
    """
    if held < least and -off > NEAR:
        return "poor", too_few[0], ""
    if held < least:
        return "fair", too_few[1], "it is somewhat too sure of itself"
    if held > most:
        return "fair", *too_many
    if rows < FEW:
        caution = f"{count(rows, 'row')} cannot tell whether its uncertainty is honest"
        return "fair", f"{kept}, but {count(rows, 'row')} cannot tell.", caution
    return "good", kept + ("." if abs(off) <= CLOSE else ", as far as so many rows can tell."), ""
