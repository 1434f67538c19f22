"""What to do next, for every verdict: collect rows, add columns, check some rows first, or nothing."""

from __future__ import annotations

import numpy as np

from .class_verdicts import never_found
from .classification import ClassificationTest
from .contents import Report
from .uncertainty_words import twice_words
from .verdict import FEW, Verdict
from .words import count, listed

# Rows that are named to be checked first.
MOST_ROWS = 5

# If more than this share of the held-out rows is unusual, that is the main problem.
MOST = 0.5

NOTHING = "Nothing is needed."


def next_step(verdict: Verdict, report: Report) -> str:
    """Return what to do next, in whole sentences."""
    steps = {"prediction": _prediction, "honesty": _honesty, "usefulness": _usefulness}
    return verdict.next_step or steps[verdict.topic](verdict, report)


def _prediction(verdict: Verdict, report: Report) -> str:
    test, target = report.test, report.table.target.name
    missed = never_found(test) if isinstance(test, ClassificationTest) else {}
    if missed:
        rows = f"Collect more rows of {listed([f'“{name}”' for name in missed])}"
        return f"{rows}, or add columns that separate them from the other rows."
    curve = report.curve
    if verdict.grade == "good":
        more = "" if curve is None or not curve.helps else f" But {_lower(twice_words(curve))}."
        return f"{NOTHING}{more}"
    if len(test) < FEW:
        return f"First collect more rows with a known {target}."
    if curve is not None:
        if curve.helps:
            return f"Collect more rows. {twice_words(curve)}. Columns that are related to {target} may also help."
        return f"Add columns that are related to {target}. More rows like these would hardly help."
    if verdict.grade == "poor":
        return f"Add columns that are related to {target}. More rows may also help."
    return f"Add columns that are related to {target}, or collect more rows."


def _honesty(verdict: Verdict, report: Report) -> str:
    test, target = report.test, report.table.target.name
    if verdict.grade == "good":
        return NOTHING
    if verdict.grade == "poor" and test.unusual is not None and test.unusual.mean() > MOST:
        return (
            f"{int(test.unusual.sum()):,} of {count(len(test), 'held-out row')} are unusual compared with the training "
            "rows, which no model can foresee. Fit again when new rows come in, and do not trust rows that `bayesnorm "
            "predict` marks as unusual."
        )
    if verdict.grade == "poor":
        named = "probabilities" if isinstance(test, ClassificationTest) else "error bars"
        return f"Do not use its {named}. Collect more rows like those that you want to predict, and fit again."
    return f"Check it on {FEW} or more rows with a known {target}."


def _usefulness(verdict: Verdict, report: Report) -> str:
    classes = isinstance(report.test, ClassificationTest)
    if verdict.grade == "good":
        order = np.argsort(-report.test.uncertainty, kind="stable")[:MOST_ROWS]
        rows = [str(report.rows.numbers[at]) for at in order]
        named = f"row {rows[0]} first: its prediction is" if len(rows) == 1 else f"rows {listed(rows)} first: they are"
        return f"Check {named} the most uncertain."
    if len(report.test) < FEW:
        return f"Collect more rows: {count(len(report.test), 'held-out row')} cannot show it."
    if verdict.grade == "poor":
        by = "uncertainty" if classes else "error bars"
        return f"Do not sort rows by their {by}. Columns that separate easy rows from hard ones might help."
    if verdict.short == "A little":
        return f"Use the {'uncertainty' if classes else 'error bars'} of single rows only as a rough guide."
    return "Treat all predictions as about equally uncertain until you have more data."


def _lower(sentence: str) -> str:
    """Return a sentence with a small first letter."""
    return sentence[0].lower() + sentence[1:]
