"""The three verdicts on a model that predicts a class."""

from __future__ import annotations

import math

import numpy as np

from ..metrics import prediction_rejection_ratio
from ..plots.binomial import CHANCE
from ..plots.uncertainty_error import QUANTILES
from .classification import ClassificationTest
from .groups import OffGroup, confidence_groups, differs, group_words, material, off_groups
from .standard_errors import CLEAR, standard_errors_from_zero
from .verdict import FEW, GRADES, HALF, LITTLE, SMALL, Grade, Outcome, Topic, Verdict, judge_share, on_line
from .words import count, listed, percent, too_few

QUESTIONS: dict[Topic, str] = {
    "prediction": "Does it predict well?",
    "honesty": "Are its probabilities honest?",
    "usefulness": "Does its uncertainty tell right answers from wrong ones?",
}

# Classes that a sentence names at most.
MOST_NAMED = 3

# A class is rare below this share of the training rows, and below half of an equal share for every class.
RARE = 0.1


def prediction(test: ClassificationTest) -> Verdict:
    """Judge whether it predicts better than the most common class in training."""
    guessed = test.y == test.majority
    right, guess = float(test.right.mean()), float(guessed.mean())
    clear = standard_errors_from_zero(test.right.astype(float) - guessed) > CLEAR
    gain = (right - guess) / (1 - guess) if guess < 1 else 0.0
    baseline = f"always answering “{test.classes[test.majority]}”"
    headline = f"It is right on {percent(right)} of the held-out rows; {baseline} is right on {percent(guess)}."
    avoided = f"It avoids {percent(gain)} of that baseline’s mistakes"
    grade: Grade = "fair"
    short = ""
    if clear and gain >= HALF:
        grade, clause = "good", "it predicts well"
    elif clear and gain < SMALL:
        short, clause = "A little", f"it predicts only a little better than {baseline}"
        headline += f" {avoided}, which is a small gain."
    elif clear:
        clause = f"it predicts only moderately better than {baseline}"
        headline += f" {avoided}."
    elif len(test) < FEW and gain > 0:
        few = f"{too_few(len(test))} it"
        short, clause = "Unclear", f"{few} predicts better than {baseline}"
        headline = f"{few} is better than {baseline}."
    elif (better := _brier_gain(test)) >= SMALL:
        clause = f"its probabilities are useful, although its answers are not significantly better than {baseline}"
        headline += (
            " Its answers are not significantly better. But its probabilities are useful: their squared error (Brier) "
            f"is {percent(better)} smaller than that of the class frequencies."
        )
    else:
        clause = f"it does not predict {'significantly ' if gain > 0 else ''}better than {baseline}"
        grade = "poor"
        headline = f"It is {'not significantly' if gain > 0 else 'no'} better than {baseline}. {headline}"
    detail = (
        f"Of {count(len(test), 'held-out row')}, it is wrong on {int((~test.right).sum()):,}. The baseline, the most "
        f"common class in training, is wrong on {int((~guessed).sum()):,}."
    )
    missed = never_found(test)
    if missed:
        named = listed([f"“{name}” (0 of {rows:,})" for name, rows in [*missed.items()][:MOST_NAMED]])
        more = (
            f" and {count(len(missed) - MOST_NAMED, 'more class', 'more classes')}" if len(missed) > MOST_NAMED else ""
        )
        headline += f" It finds no row of {named}{more}."
        finds = f"finds no row of {listed([f'“{name}”' for name in [*missed][:MOST_NAMED]])}{more}"
        if grade == "good":
            grade, clause = "fair", f"it {finds}"
        elif clear:
            clause += f" and {finds}"
    headline += _rare_words(test)
    return Verdict(
        topic="prediction",
        question=QUESTIONS["prediction"],
        grade=grade,
        headline=headline,
        detail=detail,
        place=on_line(gain),
        span=(HALF, 1.0),
        ends=("the baseline", "no mistakes"),
        clause=clause,
        short=short,
    )


def _brier_gain(test: ClassificationTest) -> float:
    """Return how much smaller its Brier score is than that of the class frequencies; 0 if that may be chance.

    If one class is rare, answers can hardly be better than the most common class, but probabilities can.
    """
    truth = np.eye(len(test.classes))[test.y]
    own, guess = (((probs - truth) ** 2).sum(1) for probs in (test.probs, test.class_shares))
    clear = standard_errors_from_zero(guess - own) > CLEAR
    return 1 - float(own.mean() / guess.mean()) if clear else 0.0


def never_found(test: ClassificationTest) -> dict[str, int]:
    """Return the classes of which no held-out row is predicted correctly, the most frequent first, and their rows."""
    rows, right = _rows_by_class(test)
    return {test.classes[at]: int(rows[at]) for at in np.argsort(-rows) if rows[at] and not right[at]}


def _rare_words(test: ClassificationTest) -> str:
    """Say how many rows of rare classes it finds; those that it never finds are named elsewhere."""
    rows, right = _rows_by_class(test)
    rare = np.flatnonzero((test.class_shares < min(RARE, 0.5 / len(test.classes))) & (right > 0))
    order = sorted(rare, key=lambda at: right[at] / rows[at])[:MOST_NAMED]
    parts = [f"{right[at]:,} of {count(int(rows[at]), 'row')} of “{test.classes[at]}”" for at in order]
    return f" It finds {listed(parts)}, which {'is' if len(parts) == 1 else 'are'} rare." if parts else ""


def _rows_by_class(test: ClassificationTest) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of held-out rows of every class, and how many of them are right."""
    classes = len(test.classes)
    return np.bincount(test.y, minlength=classes), np.bincount(test.y[test.right], minlength=classes)


def honesty(test: ClassificationTest) -> Verdict:
    """Judge whether it is right as often as its probabilities say, on average and in groups of rows.

    If they are honest, the number of right rows has mean sum p and variance sum p (1 - p), p the confidences. By chance
    alone, the average is called dishonest in about 5 % of reports, and some group in at most 5 %: the answer to honest
    probabilities is other than "Yes" in at most about 10 %.
    """
    rows, right, expected = len(test), int(test.right.sum()), float(test.confidence.sum())
    spread = QUANTILES[CHANCE] * math.sqrt(float((test.confidence * (1 - test.confidence)).sum()))
    # Rows are whole: a promise of 113.6 is kept by 113 as well as by 114.
    least = min(math.floor(expected), math.ceil(expected - spread))
    most = max(math.ceil(expected), math.floor(expected + spread))
    groups = confidence_groups(test)
    off = material(off_groups(groups))
    outcome = judge_share(right, least, most, rows, (right - expected) / rows, bool(off))
    headline = (
        f"By its own probabilities it should be right on {percent(expected / rows)} of the held-out rows. It is right "
        f"on {percent(right / rows)}"
    )
    if outcome == "group off":
        headline = f"On average yes. {headline}. But {_group(off[0])}"
    else:
        headline += {
            "as promised": ", as it should be." if least <= right <= most else ", which is close enough.",
            "too low": ": far fewer. Its probabilities are too high.",
            "slightly low": ": slightly fewer. Its probabilities are a little too high.",
            "too high": ": more. Its probabilities are lower than they could be.",
            "few rows": f", but {count(rows, 'row')} {'is' if rows == 1 else 'are'} too few to tell.",
        }[outcome]
        headline += f" {_group(off[0], start=True)}" if differs(outcome, off) else ""
    detail = (
        f"It is right on {right:,} of {count(rows, 'held-out row')}. Honest probabilities like "
        f"these would give between {least:,} and {most:,} in 19 of 20 cases. {group_words(groups)}"
    )
    clause, short, next_step = _honesty_words(outcome, rows, off)
    low = max(0.0, min(right, least) / rows - 0.05)
    place, start, end = (on_line((value / rows - low) / (1 - low)) for value in (right, least, most))
    return Verdict(
        topic="honesty",
        question=QUESTIONS["honesty"],
        grade=GRADES[outcome],
        headline=headline,
        detail=detail.strip(),
        place=place,
        span=(start, end),
        ends=(f"{percent(low)} right", "all right"),
        clause=clause,
        short=short,
        next_step=next_step,
    )


def _group(group: OffGroup, *, start: bool = False) -> str:
    """Say how often the model is right in a group."""
    where = group.where[0].upper() + group.where[1:] if start else group.where
    only = "only " if group.gap < 0 else ""
    return f"{where}, it is right on {only}{percent(group.observed)} of {count(group.rows, 'row')}."


def _honesty_words(outcome: Outcome, rows: int, off: list[OffGroup]) -> tuple[str, str, str]:
    """Return the clause, the short answer and the next step for an outcome."""
    if outcome == "group off" and off[0].gap < 0:
        step = f"Expect more mistakes than the probabilities say {off[0].where}. Check these rows before you use them."
        return f"its probabilities are too high {off[0].where}", "", step
    if outcome == "group off":
        step = f"Nothing is needed. It is right more often than its probabilities say {off[0].where}."
        return f"its probabilities are too low {off[0].where}", "", step
    words: dict[Outcome, tuple[str, str, str]] = {
        "as promised": ("its probabilities are honest", "", ""),
        "too low": ("its probabilities are too high", "", ""),
        "slightly low": (
            "its probabilities are a little too high",
            "Nearly",
            "Expect slightly more mistakes than the probabilities say.",
        ),
        "too high": (
            "its probabilities are lower than they could be",
            "Too low",
            "Nothing is needed. It is right more often than its probabilities say.",
        ),
        "few rows": (f"{too_few(rows)} its probabilities are honest", "Unclear", ""),
    }
    return words[outcome]


def usefulness(test: ClassificationTest) -> Verdict:
    """Judge whether the uncertainty (entropy) is larger for mistakes than for right answers."""
    rows, wrong = len(test), ~test.right
    mistakes = int(wrong.sum())
    ends, question = ("random order", "mistakes first"), QUESTIONS["usefulness"]
    if mistakes in (0, rows):
        headline = f"{'No' if mistakes == 0 else 'Every'} held-out row is wrong, so this cannot be tested."
        detail = "The test needs some rows that are right and some that are wrong."
        clause = "it could not be tested whether its uncertainty tells right answers from wrong ones"
        return Verdict(
            "usefulness", question, "fair", headline, detail, 0.0, (LITTLE, 1.0), ends, clause, short="Unclear"
        )
    share = float(prediction_rejection_ratio(test.uncertainty, wrong.astype(float)))
    # For right and wrong the ratio is 2 AUROC - 1, whose variance in a random order is Mann and Whitney's.
    clear = share > CLEAR * math.sqrt((rows + 1) / (3 * mistakes * (rows - mistakes)))
    grade: Grade = "fair"
    short = ""
    if share <= 0:
        grade, clause = "poor", "its uncertainty does not tell right answers from wrong ones"
        headline = "Ranking rows by uncertainty finds mistakes no better than a random order."
    else:
        only = "only " if share < LITTLE else ""
        headline = f"Ranking rows by uncertainty achieves {only}{percent(share)} of a perfect ranking"
        if not clear:
            short, clause = "Unclear", "it is unclear whether its uncertainty tells right answers from wrong ones"
            headline += ", which may be chance"
        elif only:
            short, clause = "A little", "its uncertainty tells only a little about which answers are wrong"
        else:
            grade, clause = "good", "its uncertainty tells right answers from wrong ones"
        headline += ". A perfect ranking puts all mistakes first; a random one achieves 0 %."
    kept = np.argsort(test.uncertainty, kind="stable")[: max(1, rows - round(0.2 * rows))]
    detail = (
        f"{percent(mistakes / rows, 1)} of all held-out rows are wrong. Without the most uncertain fifth of them, "
        f"{percent(float(wrong[kept].mean()), 1)} are wrong."
    )
    return Verdict(
        "usefulness", question, grade, headline, detail, on_line(share), (LITTLE, 1.0), ends, clause, short=short
    )
