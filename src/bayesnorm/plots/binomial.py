"""Ranges in which an observed share differs from its probability by chance."""

from __future__ import annotations

import numpy as np
import scipy

from ..errors import BayesNormError

# The probability of these ranges.
CHANCE = 0.95


def binomial_band(count: int | np.ndarray, probability: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the central 95 % range, (lower, upper), of the share of successes in `count` independent trials.

    Args:
        count: Number of trials, one or an array.
        probability: Probability of success in each trial, one or an array.
    """
    if np.min(count) < 1:
        raise BayesNormError(f"count must be at least 1, got {np.min(count)}.")
    lower, upper = scipy.stats.binom.interval(CHANCE, count, probability)
    return lower / count, upper / count
