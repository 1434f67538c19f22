"""What to do with the model, and the three answers behind it."""

from __future__ import annotations

from collections.abc import Sequence

from . import class_verdicts, regression_verdicts
from .contents import Report
from .regression import RegressionTest
from .verdict import Level, Verdict


def verdicts(report: Report) -> tuple[Verdict, ...]:
    """Does it predict, is its doubt honest, and is it useful?"""
    test = report.test
    if isinstance(test, RegressionTest):
        asked = regression_verdicts
        return asked.prediction(test), asked.honesty(test), asked.usefulness(test)
    return class_verdicts.prediction(test), class_verdicts.honesty(test), class_verdicts.usefulness(test)


def advice(found: Sequence[Verdict]) -> tuple[Level, str]:
    """How well the model did over all, and what to do with it in one sentence."""
    poor = {verdict.topic for verdict in found if verdict.level == "poor"}
    if "prediction" in poor:
        return "poor", "Do not rely on this model: it is not clearly better than a guess."
    if "honesty" in poor:
        return "poor", "Use its predictions if they are good enough for you, but do not believe its doubt."
    if "usefulness" in poor:
        return "fair", "Use its predictions, but doubt every row alike: what it says of single rows is no help."
    cautions = [verdict.caution for verdict in found if verdict.level == "fair"]
    if not cautions:
        return "good", "You can lean on this model: it predicts well, and it knows when it does not."
    return "fair", f"Use this model with care: {_listed(cautions)}."


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
