"""What chance alone does to shares and means of a limited number of rows."""

from __future__ import annotations

import math

from ..plots.chance import binomial_band
from .arrays import Array

CHANCE = 0.95
"""How often chance stays within the ranges given here."""

CLEAR = 2.0
"""Standard errors from zero at which a difference is called clear."""


def binomial_range(rows: int, share: float) -> tuple[int, int]:
    """The middle 95 % of how many of `rows` fall in, when each does with probability `share`: (least, most)."""
    least, most = binomial_band(rows, share, CHANCE)
    return round(least * rows), round(most * rows)


def standard_errors_from_zero(differences: Array) -> float:
    """Mean of the rows' differences over its standard error; 0 for fewer than two rows, or where all are 0.

    Few rows do not know their standard error well either: the ratio, Student's t, is given as the normal deviate of
    nearly the same probability (Wallace's approximation, 1959).
    """
    peak = float(abs(differences).max(initial=0.0))
    if len(differences) < 2 or peak == 0:
        return 0.0
    differences = differences / peak  # whose squares neither overflow nor vanish
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    mean = float(differences.mean())
    if error == 0:
        return math.copysign(math.inf, mean)
    free = len(differences) - 1
    size = math.sqrt(free * math.log1p((mean / error) ** 2 / free)) * (8 * free + 1) / (8 * free + 3)
    return math.copysign(size, mean)
