"""Sentences about the uncertainty, beside the scores."""

from __future__ import annotations

import numpy as np

from .classification import ClassificationTest
from .contents import Report
from .learning_curve import LearningCurve
from .regression import RegressionTest
from .words import count, listed, number, percent

# What held-out rows cannot tell, unless networks that learned from fewer rows were held against them.
SUM_ALONE = (
    "Held-out rows bear out the sum of both, not how it is split: whether more rows would help, this does not say."
)

# Rows that are named as those to have more of.
MOST_ROWS = 3


def uncertainty_words(report: Report) -> str:
    """Say where the uncertainty comes from, in the mean over the test rows."""
    test = report.test
    told = f" {SUM_ALONE}" if report.curve is None else ""
    if isinstance(test, RegressionTest):
        total = float((test.std**2).mean())
        share = float((test.epistemic_std**2).mean()) / total if total > 0 else 0.0
        least, middle, most = (number(float(value), 3) for value in np.quantile(test.std, (0, 0.5, 1)))
        return (
            f"Its uncertainty is between ± {least} and ± {most} (one standard deviation), in the middle ± {middle}. Of its "
            f"variance, it puts {percent(share)} down to not knowing the model, and the rest to scatter of the rows "
            f"themselves.{told}"
        )
    if test.mutual_information is None:
        return ""
    total = float(test.entropy.mean())
    share = float(test.mutual_information.mean()) / total if total > 0 else 0.0
    sure, unsure = float(np.median(test.confidence)), float(test.confidence.min())
    return (
        f"It is {percent(sure, 1)} sure of its answer in the median row, and {percent(unsure, 1)} in the one it is "
        f"least sure of. Of its uncertainty (entropy), it puts {percent(share)} down to not knowing the model, and the rest "
        f"to overlap of the classes.{told}"
    )


def more_rows_words(report: Report) -> str:
    """Say whether more rows would help, and what else would; "" where nobody looked."""
    curve, target = report.curve, report.table.target.name
    if curve is None:
        return ""
    if curve.explains_little:
        return (
            "More rows like these would hardly help: what is left is noise, and however many there are, these columns "
            f"tell hardly anything of {target}. Other columns might help."
        )
    if not curve.helps:
        return (
            "More rows like these would hardly help: what is left is noise that these columns do not explain. Other "
            "columns might help."
        )
    first, later = number(curve.at(4), 2), number(curve.shown(curve.floor), 2)
    floor = (
        f"and no number of them below {later}: that is noise, which only other columns could explain"
        if curve.floor > 0
        else "and no floor is in sight: all of it is for want of rows"
    )
    return (
        f"{twice_words(curve)}, four times as many to about {first}, {floor}. Rows like {_least_known(report)} are the "
        "first to have more of: there it knows least."
    )


def twice_words(curve: LearningCurve) -> str:
    """Begin a sentence about twice as many rows."""
    error = "typical error" if curve.measure == "RMSE" else "squared error (Brier)"
    now, then = number(curve.at(1), 2), number(curve.at(2), 2)
    if now == then:
        now, then = number(curve.at(1), 3), number(curve.at(2), 3)
    return f"Twice as many rows like these would lower the {error} from {now} to about {then}"


def _least_known(report: Report) -> str:
    """Name the test rows with the largest epistemic part."""
    test = report.test
    part = test.epistemic_std if isinstance(test, RegressionTest) else test.mutual_information
    order = np.argsort(-(test.uncertainty if part is None else part), kind="stable")[:MOST_ROWS]
    return listed([str(report.rows.numbers[at]) for at in order])


def unlike_words(test: RegressionTest | ClassificationTest) -> str:
    """Say how many rows are unlike the training data, and how they fare; "" where nobody looked."""
    if test.unlike is None:
        return ""
    rows = int(test.unlike.sum())
    if rows == 0:
        return "No held-out row is unlike the training data."
    are = "is" if rows == 1 else "are"
    if rows == len(test):
        return f"All {count(rows, 'row')} {are} unlike the training data."
    if isinstance(test, RegressionTest):
        error = np.abs(test.y - test.mean)
        here, others = (number(float(error[which].mean()), 3) for which in (test.unlike, ~test.unlike))
        fare = f"mean absolute error {here}, against {others}"
    else:
        here, others = (percent(float(test.right[which].mean())) for which in (test.unlike, ~test.unlike))
        fare = f"{here} right, against {others}"
    return f"{count(rows, 'held-out row')} {are} unlike the training data ({fare} for the others)."
