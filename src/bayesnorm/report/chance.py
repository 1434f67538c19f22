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
    """Mean of the rows' differences over its standard error; 0 for fewer than two rows, or where all are 0."""
    peak = float(abs(differences).max(initial=0.0))
    if len(differences) < 2 or peak == 0:
        return 0.0
    differences = differences / peak  # whose squares neither overflow nor vanish
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    mean = float(differences.mean())
    return mean / error if error > 0 else math.copysign(math.inf, mean) if mean else 0.0
