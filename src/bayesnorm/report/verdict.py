"""The form of a verdict, the limits that verdicts share, and the advice on the whole model.

Every verdict allows for chance: what few rows cannot show is called neither good nor poor. It also looks at the size
of a gain: a gain that is statistically significant but small is called small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..words import TOO_FEW, capitalise, join_list

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

# Columns that a sentence names at most.
MOST_NAMED = 4

# Words that are not repeated in one sentence.
ERROR_BARS = "its error bars "

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


def advice(answers: Sequence[Verdict]) -> tuple[Grade, str]:
    """Return a grade for the whole model, and one or two sentences on what to do with it.

    Args:
        answers: The verdicts on prediction, honesty and usefulness, in this order.
    """
    predicts, honest, useful = answers
    if predicts.grade == "poor":
        return "poor", f"Do not rely on this model: {predicts.clause}."
    if honest.grade == "poor":
        others = capitalise(_joined((predicts, useful)))
        return "poor", f"Do not trust this model’s uncertainty: {honest.clause}. {others}."
    if all(verdict.grade == "good" for verdict in answers):
        return "good", f"You can rely on this model: {_joined(answers)}."
    return "fair", f"Use this model with care: {_joined(answers)}."


def _joined(answers: Sequence[Verdict]) -> str:
    """Join the clauses of verdicts: first what is good, then what is not."""
    good = [verdict.clause for verdict in answers if verdict.grade == "good"]
    other = [verdict.clause for verdict in answers if verdict.grade != "good"]
    text = ", but ".join(join_list(_merged(clauses)) for clauses in (good, other) if clauses)
    first, *rest = text.split(ERROR_BARS)
    return f"{first}{ERROR_BARS}{'they '.join(rest)}" if rest else text


def _merged(clauses: Sequence[str]) -> list[str]:
    """Merge clauses that say that the rows are too few."""
    few = [clause for clause in clauses if TOO_FEW in clause]
    if len(few) < 2:
        return list(clauses)
    merged = f" or {TOO_FEW.split()[-1]} ".join([few[0], *(clause.split(f"{TOO_FEW} ")[1] for clause in few[1:])])
    return [merged, *(clause for clause in clauses if clause not in few)]


def leak_words(leaks: Mapping[str, str], target: str) -> str:
    """Say what to do about columns that reveal the target.

    Args:
        leaks: How each of them does, as the rest of a sentence "It ...", by name.
        target: Name of the target.
    """
    names = list(leaks)
    if len(names) > MOST_NAMED:
        names = [*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} others"]
    one = len(names) == 1
    which = f"column {names[0]}" if one else f"columns {join_list(names)}"
    ways = set(leaks.values())
    how = f"{'it' if one else 'each of them'} {ways.pop()}" if len(ways) == 1 else f"each of them reveals {target}"
    they_are, them = ("it is", "it") if one else ("they are", "them")
    return (
        f"Check the {which} first: {how}. If {they_are} computed from {target}, or known only "
        f"after {target}, all results below are too good to be true. Then train again without {them}."
    )
