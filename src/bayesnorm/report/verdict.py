"""The form of a verdict, the limits that verdicts share, and the advice: what to do with a model.

Every verdict allows for chance: what few rows cannot show is called neither good nor poor. It also looks at the size
of a gain: a gain that is statistically significant but small is called small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..words import TOO_FEW, capitalise, format_count, format_number, join_list
from .classification import ClassificationTest
from .contents import Report
from .page_plots import LearningCurve
from .regression import RegressionTest

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

# Rows that a sentence names at most: those to be checked first, and examples of those to collect.
MOST_CHECKED, MOST_COLLECTED = 5, 3

# If more than this share of the held-out rows is unusual, that is the main problem.
MOST_UNUSUAL = 0.5

# Words that are not repeated in one sentence.
ERROR_BARS = "its error bars "

NOTHING = "Nothing is needed."

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
    how = f"it {leaks[names[0]]}" if one else f"each of them alone reveals {target}"
    they_are, them = ("it is", "it") if one else ("they are", "them")
    return (
        f"Check the {which} first: {how}. If {they_are} computed from {target}, or known only "
        f"after {target}, all results below are too good to be true. Then train again without {them}."
    )


def prediction_step(verdict: Verdict, report: Report) -> str:
    """Say how to get better predictions."""
    test, target = report.test, report.table.target.name
    missed = test.never_found() if isinstance(test, ClassificationTest) else {}
    if missed:
        names = [f"“{name}”" for name in missed]
        if len(names) > MOST_NAMED:
            names = [*names[:MOST_NAMED], f"{len(names) - MOST_NAMED} more classes"]
        return f"Collect more rows of {join_list(names)}, or add columns that separate them from the other rows."
    curve = report.curve
    if verdict.grade == "good":
        if curve is None or not curve.helps:
            return NOTHING
        return f"{NOTHING} But t{twice_words(curve)[1:]}."
    if len(test) < FEW:
        return f"First collect more rows with a known {target}."
    if curve is not None:
        if curve.helps:
            return f"Collect more rows. {twice_words(curve)}. Columns that are related to {target} may also help."
        return f"Add columns that are related to {target}. More rows like these would hardly help."
    if verdict.grade == "poor":
        return f"Add columns that are related to {target}. More rows may also help."
    return f"Add columns that are related to {target}, or collect more rows."


def honesty_step(verdict: Verdict, report: Report) -> str:
    """Say how far to trust error bars or probabilities, and how to check them."""
    test, target = report.test, report.table.target.name
    if verdict.grade == "good":
        return NOTHING
    if verdict.grade == "poor" and test.unusual is not None and test.unusual.mean() > MOST_UNUSUAL:
        return (
            f"{int(test.unusual.sum()):,} of {format_count(len(test), 'held-out row')} are unusual compared with the "
            "training rows, which no model can foresee. Fit again when new rows come in, and do not trust rows that "
            "`bayesnorm predict` marks as unusual."
        )
    if verdict.grade == "poor":
        named = "probabilities" if isinstance(test, ClassificationTest) else "error bars"
        return f"Do not use its {named}. Collect more rows like those that you want to predict, and fit again."
    return f"Check it on {FEW} or more rows with a known {target}."


def usefulness_step(verdict: Verdict, report: Report) -> str:
    """Say which rows to check first, or why the uncertainty does not show it."""
    classes = isinstance(report.test, ClassificationTest)
    if verdict.grade == "good":
        order = np.argsort(-report.test.uncertainty, kind="stable")[:MOST_CHECKED]
        rows = [str(report.rows.numbers[at]) for at in order]
        named = (
            f"row {rows[0]} first: its prediction is" if len(rows) == 1 else f"rows {join_list(rows)} first: they are"
        )
        return f"Check {named} the most uncertain."
    if len(report.test) < FEW:
        return f"Collect more rows: {format_count(len(report.test), 'held-out row')} cannot show it."
    if verdict.grade == "poor":
        by = "uncertainty" if classes else "error bars"
        return f"Do not sort rows by their {by}. Columns that separate easy rows from hard ones might help."
    if verdict.short == "A little":
        return f"Use the {'uncertainty' if classes else 'error bars'} of single rows only as a rough guide."
    return "Treat all predictions as about equally uncertain until you have more data."


def more_rows_words(report: Report) -> str:
    """Say whether more rows would help, and what else would; "" without a learning curve."""
    curve, target = report.curve, report.table.target.name
    if curve is None:
        return ""
    if not curve.helps:
        noise = "The remaining error is noise that these columns do not explain."
        if curve.explains_little:
            noise = f"These columns say hardly anything about {target}, and the remaining error is noise."
        return f"More rows like these would hardly help. {noise} Other columns might help."
    first, later = format_number(curve.at(4), 2), format_number(curve.shown(curve.floor), 2)
    floor = (
        f"No number of rows would bring it below {later}: that part is noise, which only other columns could explain."
        if curve.floor > 0
        else "We see no lower limit yet: the error should keep falling with more rows."
    )
    return (
        f"{twice_words(curve)}, and four times as many to about {first}. {floor} Rows similar to "
        f"{_least_certain(report)} would help most, because the model is least certain there."
    )


def twice_words(curve: LearningCurve) -> str:
    """Begin a sentence about twice as many rows."""
    error = "typical error" if curve.measure == "RMSE" else "squared error (Brier)"
    now, then = (format_number(curve.at(times), 2) for times in (1, 2))
    if now == then:
        now, then = (format_number(curve.at(times), 3) for times in (1, 2))
    return f"Twice as many rows like these would lower the {error} from {now} to about {then}"


def _least_certain(report: Report) -> str:
    """Name the test rows with the largest epistemic part."""
    test = report.test
    part = test.epistemic_std if isinstance(test, RegressionTest) else test.mutual_information
    order = np.argsort(-(test.uncertainty if part is None else part), kind="stable")[:MOST_COLLECTED]
    return join_list([str(report.rows.numbers[at]) for at in order])
