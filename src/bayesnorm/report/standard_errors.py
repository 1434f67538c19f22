"""How clearly the mean over a limited number of rows differs from zero."""

from __future__ import annotations

import math

import scipy

from .arrays import Array

# Number of standard errors from which a difference is called statistically significant.
CLEAR = 2.0


def standard_errors_from_zero(differences: Array) -> float:
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
