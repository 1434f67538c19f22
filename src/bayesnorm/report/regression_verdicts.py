"""The three verdicts on a model that predicts a number."""

from __future__ import annotations

import math

import numpy as np
import scipy

from ..metrics import prediction_rejection_ratio, spearman
from ..plots.binomial import CHANCE
from .groups import OffGroup, coverage_groups, differs, group_words, material, off_groups
from .regression import RegressionTest
from .standard_errors import CLEAR, standard_errors_from_zero
from .verdict import FEW, GRADES, HALF, LITTLE, LITTLE_CRPS, SMALL, Grade, Outcome, Topic, Verdict, judge_share, on_line
from .words import count, fraction, number, percent, too_few

QUESTIONS: dict[Topic, str] = {
    "prediction": "Does it predict well?",
    "honesty": "Are its error bars honest?",
    "usefulness": "Do its error bars tell easy rows from hard ones?",
}
BASELINE = "always answering the average"


def prediction(test: RegressionTest) -> Verdict:
    """Judge whether it predicts better than the average of the training targets."""
    scores = test.scores()
    model, guess = scores["model"], scores["training_mean"]
    clear = standard_errors_from_zero((test.y - test.train_mean) ** 2 - (test.y - test.mean) ** 2) > CLEAR
    left = model.rmse / guess.rmse if guess.rmse > 0 else 1.0
    smaller = f"{percent(1 - left)} smaller than that of {BASELINE}"
    grade: Grade = "fair"
    short = ""
    if clear and left**2 <= 1 - HALF:
        grade, clause = "good", "it predicts well"
        headline = f"Its typical error is {smaller}."
    elif clear and 1 - left < SMALL:
        short, clause = "A little", f"it predicts only a little better than {BASELINE}"
        headline = f"Its typical error is only {smaller}. This is a small gain."
    elif clear:
        clause = f"it predicts only moderately better than {BASELINE}"
        headline = f"Its typical error is {smaller}. This is a moderate gain."
    elif len(test) < FEW and left < 1:
        few = f"{too_few(len(test))} it"
        short, clause = "Unclear", f"{few} predicts better than {BASELINE}"
        headline = f"{few} is better than {BASELINE}."
    else:
        clause = f"it does not predict {'significantly ' if left < 1 else ''}better than {BASELINE}"
        grade, headline = "poor", f"It is {'not significantly' if left < 1 else 'no'} better than {BASELINE}."
    r2 = "–" if math.isnan(model.r2) else fraction(model.r2, 3)
    detail = (
        f"The typical error (RMSE) is {number(model.rmse, 3)} on {count(len(test), 'held-out row')}. For the average "
        f"of the training rows it is {number(guess.rmse, 3)}. R² is {r2}."
    )
    return Verdict(
        topic="prediction",
        question=QUESTIONS["prediction"],
        grade=grade,
        headline=headline,
        detail=detail,
        place=on_line(1 - left),
        span=(1 - math.sqrt(1 - HALF), 1.0),
        ends=("the average", "no errors"),
        clause=clause,
        short=short,
    )


def honesty(test: RegressionTest) -> Verdict:
    """Judge whether intervals contain as many targets as they promise, on average and in groups of rows.

    By chance alone, the average is called dishonest in at most 5 % of reports, and some group in at most 5 %: the
    answer to honest error bars is other than "Yes" in at most 10 %, and "No" in at most 2.5 %.
    """
    rows, held = len(test), int(test.inside.sum())
    least, most = (int(bound) for bound in scipy.stats.binom.interval(CHANCE, rows, test.level))
    share = held / rows
    groups = coverage_groups(test)
    off = material(off_groups(groups))
    outcome = judge_share(held, least, most, rows, share - test.level, bool(off))
    headline = f"{percent(test.level)} intervals contain {percent(share)} of the {count(rows, 'held-out row')}"
    if outcome == "group off":
        headline = f"On average yes: {headline}. But {_group(off[0])}"
    else:
        headline += {
            "as promised": ", as they should." if least <= held <= most else ", which is close enough.",
            "too low": ": far too few. The error bars are too narrow.",
            "slightly low": ": slightly too few. The error bars are a little too narrow.",
            "too high": ": more than promised. The error bars are wider than needed.",
            "few rows": f". {count(rows, 'row')} {'is' if rows == 1 else 'are'} too few to tell whether that is right.",
        }[outcome]
        headline += f" {_group(off[0], start=True)}" if differs(outcome, off) else ""
    detail = (
        f"{held:,} of {rows:,} targets are inside their intervals. Honest intervals would contain between {least:,} "
        f"and {most:,} of them in 19 of 20 cases. {group_words(groups)}"
    )
    clause, short, next_step = _honesty_words(outcome, rows, off)
    low = max(0.0, min(2 * test.level - 1, share - 0.05))
    place, start, end = (on_line((value - low) / (1 - low)) for value in (share, least / rows, most / rows))
    return Verdict(
        topic="honesty",
        question=QUESTIONS["honesty"],
        grade=GRADES[outcome],
        headline=headline,
        detail=detail.strip(),
        place=place,
        span=(start, end),
        ends=(f"{percent(low)} inside", "all inside"),
        clause=clause,
        short=short,
        next_step=next_step,
    )


def _group(group: OffGroup, *, start: bool = False) -> str:
    """Say how many targets the intervals of a group contain."""
    where = group.where[0].upper() + group.where[1:] if start else group.where
    return f"{where} they contain {'only ' if group.gap < 0 else ''}{percent(group.observed)}."


def _honesty_words(outcome: Outcome, rows: int, off: list[OffGroup]) -> tuple[str, str, str]:
    """Return the clause, the short answer and the next step for an outcome."""
    if outcome == "group off" and off[0].gap < 0:
        step = (
            f"Expect larger errors than the error bars say {off[0].where}. Check these predictions before you use them."
        )
        return f"its error bars are too narrow {off[0].where}", "", step
    if outcome == "group off":
        step = f"Nothing is needed. Errors are smaller than the error bars say {off[0].where}."
        return f"its error bars are too wide {off[0].where}", "", step
    words: dict[Outcome, tuple[str, str, str]] = {
        "as promised": ("its error bars are honest", "", ""),
        "too low": ("its error bars are too narrow", "", ""),
        "slightly low": (
            "its error bars are a little too narrow",
            "Nearly",
            "Expect slightly larger errors than the error bars say.",
        ),
        "too high": (
            "its error bars are wider than needed",
            "Too wide",
            "Nothing is needed. Errors are smaller than the error bars say.",
        ),
        "few rows": (f"{too_few(rows)} its error bars are honest", "Unclear", ""),
    }
    return words[outcome]


def usefulness(test: RegressionTest) -> Verdict:
    """Judge whether error bars that differ by row are better than one constant error bar."""
    score = test.scores()["model"].normalised_crps
    share = None if score is None else score / 100
    own, constant = test.crps_points(), test.constant_crps_points()
    clear = standard_errors_from_zero(constant - own) > CLEAR
    before, after = float(constant.mean()), float(own.mean())
    gain = 1 - after / before if before > 0 else 0.0
    # The share of the possible gain that makes the CRPS smaller by LITTLE_CRPS.
    needed = max(LITTLE, LITTLE_CRPS * share / gain if share and gain > 0 else 0.0)
    detail = (
        f"The CRPS, an error that counts prediction and error bar together, is {number(after, 3)}. With one constant "
        f"error bar it is {number(before, 3)}, so the gain is {percent(round(gain, 3) + 0.0, 1)}. Nobody can recover "
        "all of the possible gain: that would need the size of every error in advance."
    )
    grade: Grade = "fair"
    short = ""
    constant_wins = share is None or share <= 0
    if (constant_wins or not clear) and _ranks(test):
        clause = "its error bars rank rows from easy to hard but have the wrong width"
        headline = "Error bars that differ by row rank rows from easy to hard. But their width is wrong: they are no "
        headline += f"{'' if constant_wins else 'significantly '}better than one constant error bar."
    elif share is None or constant_wins:
        grade, clause = "poor", "its error bars do not tell easy rows from hard ones"
        headline = "Error bars that differ by row are no better than one constant error bar."
    else:
        only = "only " if share < needed else ""
        headline = f"Error bars that differ by row recover {only}{percent(share)} of the possible gain over one "
        headline += "constant error bar"
        if not clear:
            short, clause = "Unclear", "it is unclear whether its error bars tell easy rows from hard ones"
            headline += ", which may be chance"
            detail += " The difference is not statistically significant."
        elif only:
            short, clause = "A little", "its error bars tell only a little about which rows are hard"
        else:
            grade, clause = "good", "its error bars tell easy rows from hard ones"
        headline += "."
    return Verdict(
        topic="usefulness",
        question=QUESTIONS["usefulness"],
        grade=grade,
        headline=headline,
        detail=detail,
        place=on_line(share or 0.0),
        span=(on_line(needed), 1.0),
        ends=("constant error bar", "ideal error bars"),
        clause=clause,
        short=short,
    )


def _ranks(test: RegressionTest) -> bool:
    """Return whether errors clearly grow with the error bars, whatever the width of these is."""
    error = np.abs(test.y - test.mean)
    if len(test) < FEW or not (np.ptp(test.std) > 0 and np.ptp(error) > 0):
        return False
    # In a random order, the rank correlation has the standard error 1 / sqrt(N - 1).
    correlation = float(spearman(test.std, error))
    ranking = float(prediction_rejection_ratio(test.std, error))
    return correlation * math.sqrt(len(test) - 1) > CLEAR and ranking >= LITTLE
