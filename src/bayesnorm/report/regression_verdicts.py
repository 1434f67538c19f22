"""The three verdicts where a number is predicted."""

from __future__ import annotations

import math

import scipy

from ..plots.binomial import CHANCE
from .regression import RegressionTest
from .standard_errors import CLEAR, standard_errors_from_zero
from .verdict import FEW, HALF, LITTLE, Grade, Verdict, judge_share, on_line
from .words import count, number, percent


def prediction(test: RegressionTest) -> Verdict:
    """Judge whether it predicts better than the average of the training targets."""
    scores = test.scores()
    model, guess = scores["model"], scores["training_mean"]
    clear = standard_errors_from_zero((test.y - test.train_mean) ** 2 - (test.y - test.mean) ** 2) > CLEAR
    left = model.rmse / guess.rmse if guess.rmse > 0 else 1.0
    grade: Grade = "poor" if not clear else "good" if left**2 <= 1 - HALF else "fair"
    caution = "its predictions leave much open"
    if clear:
        headline = f"Its errors are {percent(1 - left)} smaller than those of always answering the average."
    elif len(test) < FEW and left < 1:
        grade, caution = "fair", f"{count(len(test), 'row')} cannot tell whether it is better than a guess"
        headline = f"{count(len(test), 'row')} cannot tell whether it is better than always answering the average."
    else:
        headline = f"It is {'not clearly' if left < 1 else 'no'} better than always answering the average."
    r2 = "–" if math.isnan(model.r2) else f"{round(model.r2, 3) + 0.0:.3f}".replace("-", "−")
    detail = (
        f"Typical error (RMSE) {number(model.rmse, 3)}, against {number(guess.rmse, 3)} for the average of the "
        f"training rows, on {count(len(test), 'held-out row')}. R² is {r2}."
    )
    return Verdict(
        topic="prediction",
        grade=grade,
        headline=headline,
        detail=detail,
        place=on_line(1 - left),
        span=(1 - math.sqrt(1 - HALF), 1.0),
        ends=("the average", "no errors"),
        caution=caution,
    )


def honesty(test: RegressionTest) -> Verdict:
    """Judge whether intervals hold as many targets as they say, as far as chance allows one to tell."""
    rows, held = len(test), int(test.inside.sum())
    least, most = (int(bound) for bound in scipy.stats.binom.interval(CHANCE, rows, test.level))
    share = held / rows
    off = share - test.level
    too_few = ", too few: it is too sure of itself.", ", a little too few: it is somewhat too sure."
    too_many = ", more than promised: it is too cautious.", "its intervals are wider than need be"
    grade, say, caution = judge_share(held, least, most, rows, off, ": as they should", too_few, too_many)
    headline = f"{percent(test.level)} intervals held {percent(share)} of {count(rows, 'held-out row')}{say}"
    detail = (
        f"{held:,} of {rows:,} targets lay within. Honest intervals would hold between {least:,} and {most:,} of them, "
        "19 times in 20."
    )
    low = max(0.0, min(2 * test.level - 1, share - 0.05))
    place, start, end = (on_line((value - low) / (1 - low)) for value in (share, least / rows, most / rows))
    ends = (f"{percent(low)} held", "all held")
    return Verdict("honesty", grade, headline, detail, place, (start, end), ends, caution)


def usefulness(test: RegressionTest) -> Verdict:
    """Judge whether uncertainty for each row is better than one error bar for all of them."""
    share = test.scores()["model"].normalised_crps
    own, constant = test.crps_points(), test.constant_crps_points()
    clear = standard_errors_from_zero(constant - own) > CLEAR
    detail = (
        f"CRPS {number(float(own.mean()), 3)}, against {number(float(constant.mean()), 3)} with one error bar for all "
        "rows. Nobody reaches 100 %: that takes knowing every error beforehand."
    )
    grade: Grade = "fair"
    caution = "its uncertainty hardly tells one row from another"
    if share is None or share <= 0:
        grade, headline = "poor", "Its uncertainty is no better than a constant error bar."
    elif share < LITTLE:
        headline = "Its uncertainty is hardly better than a constant error bar."
        detail = f"It is {percent(share / 100, 1)} of the way from there to perfect. {detail}"
    else:
        headline = f"Its uncertainty is {percent(share / 100)} of the way from one-size-fits-all to perfect"
        grade = "good" if clear else "fair"
        if not clear:
            headline += ", which may be chance"
            detail += " The difference is less than two standard errors."
            caution = "what it doubts more is not clearly what it gets wrong more"
        headline += "."
    return Verdict(
        topic="usefulness",
        grade=grade,
        headline=headline,
        detail=detail,
        place=on_line((share or 0.0) / 100),
        span=(LITTLE / 100, 1.0),
        ends=("one size fits all", "perfect"),
        caution=caution,
    )
