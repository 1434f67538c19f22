"""The three verdicts on a model, and one sentence of advice that sums them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from . import class_verdicts, regression_verdicts
from .contents import Report
from .next_steps import next_step
from .regression import RegressionTest
from .verdict import Grade, Verdict
from .words import TOO_FEW, listed

# Columns that a sentence names at most.
MOST_NAMED = 4

# Words that are not repeated in one sentence.
ERROR_BARS = "its error bars "


def verdicts(report: Report) -> tuple[Verdict, ...]:
    """Return the verdicts: whether it predicts well, whether its uncertainty is honest, and whether it is useful."""
    test = report.test
    if isinstance(test, RegressionTest):
        judge = regression_verdicts
        found = judge.prediction(test), judge.honesty(test), judge.usefulness(test)
    else:
        found = class_verdicts.prediction(test), class_verdicts.honesty(test), class_verdicts.usefulness(test)
    return tuple(replace(verdict, next_step=next_step(verdict, report)) for verdict in found)


def leak_words(leaks: Mapping[str, str], target: str) -> str:
    """Say what to do about columns that reveal the target.

    Args:
        leaks: How each of them does, as the rest of a sentence "It ...", by name.
        target: Name of the target.
    """
    names = list(leaks)
    if len(names) == 1:
        return (
            f"Check the column {names[0]} first: it {leaks[names[0]]}. If it is computed from {target}, or known only "
            f"after {target}, all results below are too good to be true. Then train again without it."
        )
    shown = names if len(names) <= MOST_NAMED else [*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} others"]
    return (
        f"Check the columns {listed(shown)} first: each of them alone reveals {target}. If they are computed from "
        f"{target}, or known only after {target}, all results below are too good to be true. Then train again without "
        "them."
    )


def advice(found: Sequence[Verdict]) -> tuple[Grade, str]:
    """Return a grade for the whole model, and one or two sentences on what to do with it.

    Args:
        found: The verdicts on prediction, honesty and usefulness, in this order.
    """
    prediction, honesty, usefulness = found
    if prediction.grade == "poor":
        return "poor", f"Do not rely on this model: {prediction.clause}."
    if honesty.grade == "poor":
        rest = _joined((prediction, usefulness))
        return "poor", f"Do not trust this model’s uncertainty: {honesty.clause}. {rest[0].upper()}{rest[1:]}."
    if all(verdict.grade == "good" for verdict in found):
        return "good", f"You can rely on this model: {_joined(found)}."
    return "fair", f"Use this model with care: {_joined(found)}."


def _joined(found: Sequence[Verdict]) -> str:
    """Join the clauses of verdicts: first what is good, then what is not."""
    good = [verdict.clause for verdict in found if verdict.grade == "good"]
    other = [verdict.clause for verdict in found if verdict.grade != "good"]
    text = ", but ".join(listed(_merged(clauses)) for clauses in (good, other) if clauses)
    first, *rest = text.split(ERROR_BARS)
    return f"{first}{ERROR_BARS}{'they '.join(rest)}" if rest else text


def _merged(clauses: Sequence[str]) -> list[str]:
    """Merge clauses that say that the rows are too few."""
    few = [clause for clause in clauses if TOO_FEW in clause]
    if len(few) < 2:
        return list(clauses)
    merged = f" or {TOO_FEW.split()[-1]} ".join([few[0], *(clause.split(f"{TOO_FEW} ")[1] for clause in few[1:])])
    return [merged, *(clause for clause in clauses if clause not in few)]
