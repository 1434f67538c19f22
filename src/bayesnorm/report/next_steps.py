"""What to do next, for every verdict: more rows, other columns, rows of one class, rows to check first, or nothing."""

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

# Share of held-out rows unlike those of training above which that is what is wrong.
MOST = 0.5

NOTHING = "nothing."


def next_step(verdict: Verdict, report: Report) -> str:
    """Return the rest of a sentence "Next: ..."."""
    return {"prediction": _prediction, "honesty": _honesty, "usefulness": _usefulness}[verdict.topic](verdict, report)


def _prediction(verdict: Verdict, report: Report) -> str:
    test, target = report.test, report.table.target.name
    missed = never_found(test) if isinstance(test, ClassificationTest) else {}
    if missed:
        return f"more rows of {listed([f'“{name}”' for name in missed])}, or columns that tell them from the rest."
    curve = report.curve
    if verdict.grade == "good":
        return NOTHING if curve is None or not curve.helps else f"nothing; but {_lower(twice_words(curve))}."
    if len(test) < FEW:
        return f"more rows with a known {target}, before anything else."
    if curve is not None:
        if curve.helps:
            return f"more rows: {_lower(twice_words(curve))}. Columns that have to do with {target} may help, too."
        return f"columns that have to do with {target}; more rows like these would hardly help."
    more = "more rows may help, too" if verdict.grade == "poor" else "or more rows"
    return f"columns that have to do with {target}; {more}."


def _honesty(verdict: Verdict, report: Report) -> str:
    test, target = report.test, report.table.target.name
    if verdict.grade == "good":
        return NOTHING
    if verdict.grade == "poor" and test.unlike is not None and test.unlike.mean() > MOST:
        return (
            f"{int(test.unlike.sum()):,} of {count(len(test), 'held-out row')} are unlike the training rows, which no "
            "uncertainty foresees: fit again as rows come in, and trust none that `predict` flags."
        )
    if verdict.grade == "poor":
        return "more rows like those that you want predicted, and another fit; until then leave its uncertainty aside."
    if len(test) < FEW:
        return f"hold it against {FEW} rows or more with a known {target}."
    return "nothing, if you allow for that."


def _usefulness(verdict: Verdict, report: Report) -> str:
    if verdict.grade == "good":
        order = np.argsort(-report.test.uncertainty, kind="stable")[:MOST_ROWS]
        rows = [str(report.rows.numbers[at]) for at in order]
        return f"check {'row' if len(rows) == 1 else 'rows'} {listed(rows)} first, which it doubts most."
    if len(report.test) < FEW:
        return f"more rows: {count(len(report.test), 'row')} cannot show it."
    if verdict.grade == "poor":
        return "do not sort rows by its uncertainty; columns that tell easy rows from hard ones might help."
    return "uncertainty all rows about alike, until more rows show otherwise."


def _lower(sentence: str) -> str:
    """Return a sentence as it goes on after another's beginning."""
    return sentence[0].lower() + sentence[1:]
