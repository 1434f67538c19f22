"""A measure of how clearly a mean over a limited number of rows differs from zero."""

from __future__ import annotations

import math

import scipy

from .arrays import Array

# Standard errors from zero at which a difference is called clear.
CLEAR = 2.0


def standard_errors_from_zero(differences: Array) -> float:
    """Return the mean of the rows' differences over its standard error; 0 for fewer than two rows, or all of them 0.

    Few rows do not know their standard error well either: the ratio, Student's t, is given as the normal deviate of
    the same probability.
    """
    peak = float(abs(differences).max(initial=0.0))
    if len(differences) < 2 or peak == 0:
        return 0.0
    differences = differences / peak  # whose squares neither overflow nor vanish
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    mean = float(differences.mean())
    ratio = abs(mean) / error if error else math.inf
    return math.copysign(-scipy.special.ndtri(scipy.special.stdtr(len(differences) - 1, -ratio)), mean)
