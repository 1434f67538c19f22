"""The verdicts on skill: whether predictions are better than a baseline, and whether uncertainty ranks rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..metrics import prediction_rejection_ratio, spearman
from ..words import capitalise, format_count, format_decimals, format_number, format_percent
from .class_skill import judge_classes
from .classification import ClassificationTest
from .gains import CLEAR, PREDICTS, judge_gain, standard_errors_from_zero
from .regression import RegressionTest
from .verdict import FEW, HALF, LITTLE, LITTLE_CRPS, Grade, Scale, Verdict, limit

# Added to a share that is not significant.
BY_CHANCE = ", which may be chance"


def prediction(test: RegressionTest | ClassificationTest) -> Verdict:
    """Judge whether it predicts better than always answering the average, or the class frequencies in training."""
    return _numbers(test) if isinstance(test, RegressionTest) else judge_classes(test)


def _numbers(test: RegressionTest) -> Verdict:
    """Compare the error with that of the average of the training targets."""
    scores = test.scores()
    model, guess = scores["model"], scores["training_mean"]
    baseline = "always answering the average"
    clear = standard_errors_from_zero((test.y - test.train_mean) ** 2 - (test.y - test.mean) ** 2) > CLEAR
    left = model.rmse / guess.rmse if guess.rmse > 0 else 1.0
    gain = judge_gain(1 - left, len(test), baseline, clear=clear, large=left**2 <= 1 - HALF)
    smaller = f"{format_percent(1 - left)} smaller than that of {baseline}"
    headlines = {
        "large": f"Its typical error is {smaller}.",
        "small": f"Its typical error is only {smaller}. This is a small gain.",
        "moderate": f"Its typical error is {smaller}. This is a moderate gain.",
    }
    r2 = "–" if math.isnan(model.r2) else format_decimals(model.r2, 3)
    detail = (
        f"The typical error (RMSE) is {format_number(model.rmse, 3)} on {format_count(len(test), 'held-out row')}. For "
        f"the average of the training rows it is {format_number(guess.rmse, 3)}. R² is {r2}."
    )
    scale = Scale(limit(1 - left), 1 - math.sqrt(1 - HALF), 1.0, ("the average", "no errors"))
    headline = gain.headline or headlines[gain.size]
    return Verdict("prediction", PREDICTS, gain.grade, headline, detail, scale, gain.clause, gain.short)


def usefulness(test: RegressionTest | ClassificationTest) -> Verdict:
    """Judge whether the uncertainty tells rows apart: easy from hard ones, or right from wrong answers."""
    return _error_bars(test) if isinstance(test, RegressionTest) else _entropy(test)


class Ranking(NamedTuple):
    """Words for what the uncertainty should do: who tells what, and about which rows."""

    does: str
    subject: str
    verb: str
    difference: str
    which: str

    @property
    def question(self) -> str:
        """The question that the verdict answers."""
        return f"{capitalise(self.does)} {self.subject} tell {self.difference}?"

    def judge(self, share: float, needed: float, *, clear: bool) -> tuple[Grade, str, str]:
        """Return the grade, the short answer and the clause for a share of the possible gain."""
        tells = f"{self.subject} {self.verb}"
        if share <= 0:
            return "poor", "", f"{self.subject} {self.does} not tell {self.difference}"
        if not clear:
            return "fair", "Unclear", f"it is unclear whether {tells} {self.difference}"
        if share < needed:
            return "fair", "A little", f"{tells} only a little about {self.which}"
        return "good", "", f"{tells} {self.difference}"


ERROR_BARS = Ranking("do", "its error bars", "tell", "easy rows from hard ones", "which rows are hard")
ENTROPY = Ranking("does", "its uncertainty", "tells", "right answers from wrong ones", "which answers are wrong")


def _share_words(share: float, needed: float) -> str:
    """Write a share of the possible gain, with "only" if more is needed."""
    return f"{'only ' if share < needed else ''}{format_percent(share)}"


def _error_bars(test: RegressionTest) -> Verdict:
    """Compare the CRPS with that of one constant error bar."""
    score = test.scores()["model"].normalised_crps
    share = 0.0 if score is None else score / 100
    model, constant = test.crps_points(), test.constant_crps_points()
    clear = standard_errors_from_zero(constant - model) > CLEAR
    before, after = float(constant.mean()), float(model.mean())
    gain = 1 - after / before if before > 0 else 0.0
    # The share of the possible gain that makes the CRPS smaller by LITTLE_CRPS.
    needed = max(LITTLE, LITTLE_CRPS * share / gain if share and gain > 0 else 0.0)
    grade, short, clause = ERROR_BARS.judge(share, needed, clear=clear)
    detail = (
        f"The CRPS, an error that counts prediction and error bar together, is {format_number(after, 3)}. With one "
        f"constant error bar it is {format_number(before, 3)}, so the gain is "
        f"{format_percent(round(gain, 3) + 0.0, 1)}. Nobody can recover all of the possible gain: that would need the "
        "size of every error in advance."
    )
    if (share <= 0 or not clear) and _ranks(test):
        grade, short, clause = "fair", "", "its error bars rank rows from easy to hard but have the wrong width"
        headline = (
            "Error bars that differ by row rank rows from easy to hard. But their width is wrong: they are "
            f"{'no' if share <= 0 else 'not significantly'} better than one constant error bar."
        )
    elif share <= 0:
        headline = "Error bars that differ by row are no better than one constant error bar."
    else:
        headline = (
            f"Error bars that differ by row recover {_share_words(share, needed)} of the possible gain over one "
            f"constant error bar{'' if clear else BY_CHANCE}."
        )
        detail += "" if clear else " The difference is not statistically significant."
    scale = Scale(limit(share), limit(needed), 1.0, ("constant error bar", "ideal error bars"))
    return Verdict("usefulness", ERROR_BARS.question, grade, headline, detail, scale, clause, short)


def _ranks(test: RegressionTest) -> bool:
    """Return whether errors clearly grow with the error bars, whatever the width of these is."""
    error = np.abs(test.y - test.mean)
    if len(test) < FEW or not (np.ptp(test.std) > 0 and np.ptp(error) > 0):
        return False
    # In a random order, the rank correlation has the standard error 1 / sqrt(N - 1).
    correlation = float(spearman(test.std, error))
    ranking = float(prediction_rejection_ratio(test.std, error))
    return correlation * math.sqrt(len(test) - 1) > CLEAR and ranking >= LITTLE


def _entropy(test: ClassificationTest) -> Verdict:
    """Compare the order of rows by entropy with a random order, and with one that has all mistakes first."""
    rows, wrong = len(test), ~test.right
    mistakes = int(wrong.sum())
    grade: Grade
    if mistakes in (0, rows):
        share = 0.0
        grade, short = "fair", "Unclear"
        headline = f"{'No' if mistakes == 0 else 'Every'} held-out row is wrong, so this cannot be tested."
        detail = "The test needs some rows that are right and some that are wrong."
        clause = "it could not be tested whether its uncertainty tells right answers from wrong ones"
    else:
        share = float(prediction_rejection_ratio(test.uncertainty, wrong.astype(float)))
        # For right and wrong the ratio is 2 AUROC - 1, whose variance in a random order is Mann and Whitney's.
        clear = share > CLEAR * math.sqrt((rows + 1) / (3 * mistakes * (rows - mistakes)))
        grade, short, clause = ENTROPY.judge(share, LITTLE, clear=clear)
        if share <= 0:
            headline = "Ranking rows by uncertainty finds mistakes no better than a random order."
        else:
            headline = (
                f"Ranking rows by uncertainty achieves {_share_words(share, LITTLE)} of a perfect ranking"
                f"{'' if clear else BY_CHANCE}. A perfect ranking puts all mistakes first; a random one achieves 0 %."
            )
        certain = np.argsort(test.uncertainty, kind="stable")[: max(1, rows - round(0.2 * rows))]
        detail = (
            f"{format_percent(mistakes / rows, 1)} of all held-out rows are wrong. Without the most uncertain fifth of "
            f"them, {format_percent(float(wrong[certain].mean()), 1)} are wrong."
        )
    scale = Scale(limit(share), LITTLE, 1.0, ("random order", "mistakes first"))
    return Verdict("usefulness", ENTROPY.question, grade, headline, detail, scale, clause, short)
