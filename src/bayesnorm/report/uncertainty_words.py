"""Sentences about the uncertainty, beside the scores."""

from __future__ import annotations

import numpy as np

from .classification import ClassificationTest
from .contents import Report
from .learning_curve import LearningCurve
from .regression import RegressionTest
from .words import count, listed, number, percent

# The limit of this split unless networks that were trained on fewer rows were compared as well.
SUM_ALONE = (
    "Held-out rows confirm only the sum of the two parts, not the split. So this does not show whether more rows would "
    "help."
)

# Rows that are named as examples of those to collect.
MOST_ROWS = 3


def uncertainty_words(report: Report) -> str:
    """Say how large the uncertainty is and where it comes from, on average over the test rows."""
    test = report.test
    limit = f" {SUM_ALONE}" if report.curve is None else ""
    # Not where the learning curve shows the contrary.
    reducible = ": more data could reduce it" if report.curve is None or report.curve.helps else ""
    if isinstance(test, RegressionTest):
        total = float((test.std**2).mean())
        share = float((test.epistemic_std**2).mean()) / total if total > 0 else 0.0
        least, middle, most = (number(float(value), 3) for value in np.quantile(test.std, (0, 0.5, 1)))
        return (
            f"The error bars (one standard deviation) are between ± {least} and ± {most}, with a median of ± {middle}. "
            f"{percent(share)} of the predicted variance is epistemic{reducible}. The rest is noise in "
            f"the target.{limit}"
        )
    if test.mutual_information is None:
        return ""
    total = float(test.entropy.mean())
    share = float(test.mutual_information.mean()) / total if total > 0 else 0.0
    sure, unsure = float(np.median(test.confidence)), float(test.confidence.min())
    return (
        f"The probability of the predicted class is {percent(sure, 1)} in the median row and {percent(unsure, 1)} in "
        f"the least certain row. {percent(share)} of the uncertainty (entropy) is epistemic{reducible}. "
        f"The rest is overlap between the classes.{limit}"
    )


def more_rows_words(report: Report) -> str:
    """Say whether more rows would help, and what else would; "" without a learning curve."""
    curve, target = report.curve, report.table.target.name
    if curve is None:
        return ""
    if curve.explains_little:
        return (
            f"More rows like these would hardly help. These columns say hardly anything about {target}, and the "
            "remaining error is noise. Other columns might help."
        )
    if not curve.helps:
        return (
            "More rows like these would hardly help. The remaining error is noise that these columns do not explain. "
            "Other columns might help."
        )
    first, later = number(curve.at(4), 2), number(curve.shown(curve.floor), 2)
    floor = (
        f"No number of rows would bring it below {later}: that part is noise, which only other columns could explain."
        if curve.floor > 0
        else "We see no lower limit yet: the error should keep falling with more rows."
    )
    return (
        f"{twice_words(curve)}, and four times as many to about {first}. {floor} Rows similar to "
        f"{_least_known(report)} would help most, because the model is least certain there."
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


def unusual_words(test: RegressionTest | ClassificationTest) -> str:
    """Say how many rows are unusual compared with the training data, and how well they are predicted; "" if unknown."""
    if test.unusual is None:
        return ""
    rows = int(test.unusual.sum())
    if rows == 0:
        return "No held-out row is unusual compared with the training data."
    if rows == len(test):
        all_rows = "The only held-out row is" if rows == 1 else f"All {count(rows, 'held-out row')} are"
        return f"{all_rows} unusual compared with the training data."
    are = "is" if rows == 1 else "are"
    if isinstance(test, RegressionTest):
        error = np.abs(test.y - test.mean)
        here, others = (number(float(error[which].mean()), 3) for which in (test.unusual, ~test.unusual))
        compared = f"Their mean absolute error is {here}; for the other rows it is {others}."
    else:
        here, others = (percent(float(test.right[which].mean())) for which in (test.unusual, ~test.unusual))
        compared = f"{here} of them are right; of the other rows, {others} are."
    return f"{count(rows, 'held-out row')} {are} unusual compared with the training data. {compared}"
