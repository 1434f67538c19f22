"""The three verdicts where a class is predicted."""

from __future__ import annotations

import math

import numpy as np

from ..metrics import prediction_rejection_ratio
from ..plots.binomial import CHANCE
from ..plots.uncertainty_error import QUANTILES
from .classification import ClassificationTest
from .standard_errors import CLEAR, standard_errors_from_zero
from .verdict import FEW, HALF, Grade, Verdict, judge_share, on_line
from .words import count, listed, percent

# Classes that a sentence names at most.
MOST_NAMED = 3


def prediction(test: ClassificationTest) -> Verdict:
    """Judge whether it predicts better than the most common class in training."""
    guessed = test.y == test.majority
    right, guess = float(test.right.mean()), float(guessed.mean())
    clear = standard_errors_from_zero(test.right.astype(float) - guessed) > CLEAR
    gain = (right - guess) / (1 - guess) if guess < 1 else 0.0
    grade: Grade = "poor" if not clear else "good" if gain >= HALF else "fair"
    name = test.classes[test.majority]
    caution = "it still makes more than half of a guess’s mistakes"
    if clear:
        headline = f"It is right on {percent(right)} of rows; always answering “{name}” is right on {percent(guess)}."
    elif len(test) < FEW and gain > 0:
        grade, caution = "fair", f"{count(len(test), 'row')} cannot tell whether it is better than a guess"
        headline = f"{count(len(test), 'row')} cannot tell whether it is better than always answering “{name}”."
    else:
        headline = f"It is {'not clearly' if gain > 0 else 'no'} better than always answering “{name}”."
    detail = (
        f"{int((~test.right).sum()):,} of {count(len(test), 'held-out row')} wrong, against {int((~guessed).sum()):,} "
        "for the most common class in training"
    )
    detail += f": {percent(gain)} of those mistakes are gone." if clear else "."
    missed = never_found(test)
    if missed:
        named = listed([f"“{each}” (0 of {rows:,})" for each, rows in [*missed.items()][:MOST_NAMED]])
        more = (
            f" and {count(len(missed) - MOST_NAMED, 'more class', 'more classes')}" if len(missed) > MOST_NAMED else ""
        )
        headline += f" It never finds {named}{more}."
        caution = f"it never finds {listed([f'“{each}”' for each in [*missed][:MOST_NAMED]])}{more}"
        grade = "fair" if grade == "good" else grade
    return Verdict(
        topic="prediction",
        grade=grade,
        headline=headline,
        detail=detail,
        place=on_line(gain),
        span=(HALF, 1.0),
        ends=("the guess", "no mistakes"),
        caution=caution,
    )


def never_found(test: ClassificationTest) -> dict[str, int]:
    """Return the classes whose held-out rows are all taken for another one, the most frequent first, and their rows."""
    rows = np.bincount(test.y, minlength=len(test.classes))
    found = np.bincount(test.y[test.right], minlength=len(test.classes))
    return {test.classes[each]: int(rows[each]) for each in np.argsort(-rows) if rows[each] and not found[each]}


def honesty(test: ClassificationTest) -> Verdict:
    """Judge whether it is right as often as its probabilities say, as far as chance allows one to tell.

    If they are honest, the number of right rows has mean sum p and variance sum p (1 - p), p the confidences.
    """
    rows, right, expected = len(test), int(test.right.sum()), float(test.confidence.sum())
    spread = QUANTILES[CHANCE] * math.sqrt(float((test.confidence * (1 - test.confidence)).sum()))
    # Rows are whole: a promise of 113.6 is kept by 113 as well as by 114.
    least = min(math.floor(expected), math.ceil(expected - spread))
    most = max(math.ceil(expected), math.floor(expected + spread))
    off = (right - expected) / rows
    too_few = "it is too sure of itself.", "it is somewhat too sure."
    too_many = "it is too modest.", "it is better than its probabilities say"
    grade, say, caution = judge_share(right, least, most, rows, off, "as it should be", too_few, too_many)
    headline = (
        f"By its own probabilities it should be right on {percent(expected / rows)} of rows, and it was on "
        f"{percent(right / rows)}: {say}"
    )
    detail = (
        f"{right:,} of {count(rows, 'held-out row')} right. Honest probabilities like these give between {least:,} and "
        f"{most:,}, 19 times in 20."
    )
    low = max(0.0, min(right, least) / rows - 0.05)
    place, start, end = (on_line((value / rows - low) / (1 - low)) for value in (right, least, most))
    ends = (f"{percent(low)} right", "all right")
    return Verdict("honesty", grade, headline, detail, place, (start, end), ends, caution)


def usefulness(test: ClassificationTest) -> Verdict:
    """Judge whether it doubts its mistakes more than the rest."""
    rows, wrong = len(test), ~test.right
    mistakes = int(wrong.sum())
    ends = ("no order", "perfect order")
    if mistakes in (0, rows):
        headline = f"{'No' if mistakes == 0 else 'Every'} held-out row is wrong, so nobody can tell."
        detail = "Whether it doubts its mistakes more shows only where some rows are right and some are wrong."
        caution = "whether it doubts its mistakes could not be tested"
        return Verdict("usefulness", "fair", headline, detail, 0.0, (0.0, 1.0), ends, caution)
    share = float(prediction_rejection_ratio(test.uncertainty, wrong.astype(float)))
    # For right and wrong the ratio is 2 AUROC - 1, whose variance in a random order is Mann and Whitney's.
    clear = share > CLEAR * math.sqrt((rows + 1) / (3 * mistakes * (rows - mistakes)))
    grade: Grade = "poor" if share <= 0 else "good" if clear else "fair"
    headline = (
        "It does not uncertainty its mistakes more than the rest."
        if share <= 0
        else f"Sorted by uncertainty, its rows are {percent(share)} of the way from no order to mistakes first"
        + ("." if clear else ", which may be chance.")
    )
    kept = np.argsort(test.uncertainty, kind="stable")[: max(1, rows - round(0.2 * rows))]
    detail = (
        f"{percent(mistakes / rows, 1)} of all rows are wrong, and {percent(float(wrong[kept].mean()), 1)} without the "
        "fifth that it doubts most."
    )
    caution = "what it doubts more is not clearly what it gets wrong more"
    return Verdict("usefulness", grade, headline, detail, on_line(share), (0.0, 1.0), ends, caution)
