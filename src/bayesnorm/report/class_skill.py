"""The verdict on predicted classes: by negative log likelihood and AUC, against the class frequencies in training.

Accuracy is not judged: if one class is rare, no answer may beat the most common class, while the probabilities tell
the classes apart.
"""

from __future__ import annotations

import math

import numpy as np

from ..words import format_count, format_number, format_percent, join_list
from .classification import ClassificationTest
from .gains import CLEAR, PREDICTS, judge_gain, standard_errors_from_zero
from .verdict import HALF, SMALL, Scale, Verdict, limit

# Classes that a sentence names at most.
MOST_NAMED = 3

# A class is rare below this share of the training rows, and below half of an equal share for every class.
RARE = 0.1

# The AUC of a good model.
GOOD_AUC = 0.8

BASELINE = "the class frequencies"


def judge_classes(test: ClassificationTest) -> Verdict:
    """Compare the negative log likelihood with that of the class frequencies, and look at the AUC."""
    scores = test.scores()
    model, guess = scores["model"].nll, scores["class_shares"].nll
    lower = 1 - model / guess if guess > 0 else 0.0
    auc = scores["model"].auc
    clear = standard_errors_from_zero(test.share_nll_points() - test.nll_points()) > CLEAR
    ranks = auc is not None and auc - 0.5 > CLEAR * auc_error(test)
    large = lower >= HALF or (auc is not None and auc >= GOOD_AUC and lower >= SMALL)
    gain = judge_gain(lower, len(test), BASELINE, clear=clear, large=large)
    grade, clause = gain.grade, gain.clause
    mean = "" if len(test.classes) == 2 else ", on average over the classes"
    separates = (
        ""
        if auc is None
        else f"Its AUC is {format_number(auc, 2 if auc < 0.95 else 3)} (0.5 is chance, 1 is perfect){mean}. "
    )
    reduced = f"Its negative log likelihood is {format_percent(lower)} lower than that of {BASELINE}"
    headline = {
        "large": f"{separates}{reduced}.",
        "moderate": f"{separates}{reduced}. This is a moderate gain.",
        "small": f"{separates}{reduced}. This is a small gain.",
        "unclear": gain.headline,
        "none": f"{separates}Its negative log likelihood is not {'significantly ' if lower > 0 else ''}lower than "
        f"that of {BASELINE}.",
    }[gain.size]
    if gain.size == "none" and ranks:
        grade = "fair"
        clause = f"it ranks rows by class, but its probabilities are not better than {BASELINE}"
        headline += " So it ranks rows, but its probabilities are of no use as they are."
    if missed := test.never_found():
        named = join_list([f"“{name}” (0 of {rows:,})" for name, rows in [*missed.items()][:MOST_NAMED]])
        others = len(missed) - MOST_NAMED
        more = f" and {format_count(others, 'more class', 'more classes')}" if others > 0 else ""
        headline += f" It finds no row of {named}{more}."
        finds = f"finds no row of {join_list([f'“{name}”' for name in [*missed][:MOST_NAMED]])}{more}"
        if grade == "good":
            grade, clause = "fair", f"it {finds}"
        elif clear:
            clause += f" and {finds}"
    headline += _rare_words(test)
    right, common = float(test.right.mean()), float((test.y == test.majority).mean())
    detail = (
        f"The negative log likelihood is {format_number(model, 3)} on {format_count(len(test), 'held-out row')}. For "
        f"{BASELINE} in training it is {format_number(guess, 3)}. It is right on {format_percent(right)} of the rows; "
        f"always answering “{test.classes[test.majority]}” is right on {format_percent(common)}."
    )
    place = limit(2 * auc - 1) if auc is not None else 0.0
    scale = Scale(place, 2 * GOOD_AUC - 1, 1.0, ("AUC 0.5", "AUC 1"))
    return Verdict("prediction", PREDICTS, grade, headline, detail, scale, clause, gain.short)


def auc_error(test: ClassificationTest) -> float:
    """Return a standard error of the AUC of rows in a random order (Mann and Whitney); an upper bound for a mean."""
    rows = len(test)
    counts = np.bincount(test.y, minlength=len(test.classes))
    errors = [math.sqrt((rows + 1) / (12 * count * (rows - count))) if 0 < count < rows else 0.0 for count in counts]
    if len(test.classes) == 2:
        return errors[0]
    return float(np.dot(counts, errors)) / rows


def _rare_words(test: ClassificationTest) -> str:
    """Say how many rows of rare classes it finds; those that it never finds are named elsewhere."""
    rows, right = test.rows_by_class()
    rare = np.flatnonzero((test.class_shares < min(RARE, 0.5 / len(test.classes))) & (right > 0))
    order = sorted(rare, key=lambda at: right[at] / rows[at])[:MOST_NAMED]
    parts = [f"{right[at]:,} of {format_count(int(rows[at]), 'row')} of “{test.classes[at]}”" for at in order]
    return f" It finds {join_list(parts)}, which {'is' if len(parts) == 1 else 'are'} rare." if parts else ""
