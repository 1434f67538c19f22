"""Sentences about the doubt, beside the scores."""

from __future__ import annotations

import numpy as np

from .classification import ClassificationTest
from .regression import RegressionTest
from .words import count, number, percent

# What held-out rows cannot tell.
SUM_ALONE = (
    "Held-out rows bear out the sum of both, not how it is split: whether more rows would help, this does not say."
)


def doubt_words(test: RegressionTest | ClassificationTest) -> str:
    """Say where the doubt comes from, in the mean over the test rows."""
    if isinstance(test, RegressionTest):
        total = float((test.std**2).mean())
        share = float((test.epistemic_std**2).mean()) / total if total > 0 else 0.0
        least, middle, most = (number(float(value), 3) for value in np.quantile(test.std, (0, 0.5, 1)))
        return (
            f"Its doubt is between ± {least} and ± {most} (one standard deviation), in the middle ± {middle}. Of its "
            f"variance, it puts {percent(share)} down to not knowing the model, and the rest to scatter of the rows "
            f"themselves. {SUM_ALONE}"
        )
    if test.mutual_information is None:
        return ""
    total = float(test.entropy.mean())
    share = float(test.mutual_information.mean()) / total if total > 0 else 0.0
    sure, unsure = float(np.median(test.confidence)), float(test.confidence.min())
    return (
        f"It is {percent(sure, 1)} sure of its answer in the median row, and {percent(unsure, 1)} in the one it is "
        f"least sure of. Of its doubt (entropy), it puts {percent(share)} down to not knowing the model, and the rest "
        f"to overlap of the classes. {SUM_ALONE}"
    )


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
