"""Gains over a baseline: whether they are significant, and how large they are."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from ..words import too_few
from .verdict import FEW, SMALL, Grade

# Number of standard errors from which a difference is called statistically significant.
CLEAR = 2.0

PREDICTS = "Does it predict well?"


class Gain(NamedTuple):
    """The size of a gain, with its grade, short answer and clause. A gain that may be chance has a headline."""

    size: Literal["large", "moderate", "small", "unclear", "none"]
    grade: Grade
    short: str
    clause: str
    headline: str = ""


def judge_gain(gain: float, rows: int, baseline: str, *, clear: bool, large: bool) -> Gain:
    """Judge the share of the baseline's errors that a model avoids: whether it is significant, and how large."""
    if clear and large:
        return Gain("large", "good", "", "it predicts well")
    if clear and gain < SMALL:
        return Gain("small", "fair", "A little", f"it predicts only a little better than {baseline}")
    if clear:
        return Gain("moderate", "fair", "", f"it predicts only moderately better than {baseline}")
    if rows < FEW and gain > 0:
        few = f"{too_few(rows)} it"
        better = f"better than {baseline}"
        return Gain("unclear", "fair", "Unclear", f"{few} predicts {better}", f"{few} is {better}.")
    better = f"{'significantly ' if gain > 0 else ''}better than {baseline}"
    return Gain("none", "poor", "", f"it does not predict {better}", f"It is {'not' if gain > 0 else 'no'} {better}.")


def standard_errors_from_zero(differences: NDArray[np.float64]) -> float:
    """Return the mean of the differences divided by its standard error; 0 for fewer than two rows, or if all are 0.

    With few rows the standard error is uncertain as well. So the ratio, which is Student's t, is converted to the
    normal deviate of the same probability.
    """
    peak = float(abs(differences).max(initial=0.0))
    if len(differences) < 2 or peak == 0:
        return 0.0
    differences = differences / peak  # so that squares neither overflow nor vanish
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    mean = float(differences.mean())
    ratio = abs(mean) / error if error else math.inf
    return math.copysign(-scipy.special.ndtri(scipy.special.stdtr(len(differences) - 1, -ratio)), mean)
