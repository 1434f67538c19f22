"""The advice on what to do with the model, and the three verdicts behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from . import class_verdicts, regression_verdicts
from .contents import Report
from .next_steps import next_step
from .regression import RegressionTest
from .verdict import Grade, Verdict
from .words import listed

# Columns that a sentence names at most.
MOST_NAMED = 4


def verdicts(report: Report) -> tuple[Verdict, ...]:
    """Judge whether it predicts, whether its uncertainty is honest, and whether that is useful."""
    test = report.test
    if isinstance(test, RegressionTest):
        asked = regression_verdicts
        found = asked.prediction(test), asked.honesty(test), asked.usefulness(test)
    else:
        found = class_verdicts.prediction(test), class_verdicts.honesty(test), class_verdicts.usefulness(test)
    return tuple(replace(verdict, next_step=next_step(verdict, report)) for verdict in found)


def leak_words(leaks: Mapping[str, str], target: str) -> str:
    """Say what to do about columns that alone give the target away.

    Args:
        leaks: How each of them does, as the rest of a sentence "It ...", by name.
        target: Name of the target.
    """
    names = list(leaks)
    if len(names) == 1:
        return (
            f"Look at {names[0]} first: it {leaks[names[0]]}. If it is made from {target}, or known only once {target} "
            "is, everything below is too good to be true: train again without it."
        )
    shown = names if len(names) <= MOST_NAMED else [*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} others"]
    return (
        f"Look at {listed(shown)} first: each of them alone gives {target} away. If they are made from {target}, or "
        f"known only once {target} is, everything below is too good to be true: train again without them."
    )


def advice(found: Sequence[Verdict]) -> tuple[Grade, str]:
    """Return how well the model did over all, and one sentence on what to do with it."""
    poor = {verdict.topic for verdict in found if verdict.grade == "poor"}
    if "prediction" in poor:
        return "poor", "Do not rely on this model: it is not clearly better than a guess."
    if "honesty" in poor:
        return "poor", "Use its predictions if they are good enough for you, but do not believe its uncertainty."
    cautions = [verdict.caution for verdict in found if verdict.grade == "fair"]
    if "usefulness" in poor:
        alike = "uncertainty every row alike: what it says of single rows is no help"
        care = f"with care, because {listed(cautions)}, and" if cautions else "but"
        return "fair", f"Use its predictions{' ' if cautions else ', '}{care} {alike}."
    if not cautions:
        return "good", "You can lean on this model: it predicts well, and it knows when it does not."
    return "fair", f"Use this model with care: {listed(cautions)}."
