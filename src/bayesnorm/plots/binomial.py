"""Ranges within which a share of rows strays from its probability by chance alone."""

from __future__ import annotations

import numpy as np
import scipy

from ..errors import BayesNormError

# Probability of the ranges that are explained by chance.
CHANCE = 0.95


def binomial_band(count: int | np.ndarray, probability: float | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the central 95 % range of the share of `count` independent trials that succeed: (lower, upper).

    Args:
        count: Number of trials, one or an array.
        probability: Probability of success in each trial, one or an array.
    """
    if np.min(count) < 1:
        raise BayesNormError(f"count must be at least one trial, got {np.min(count)}.")
    lower, upper = scipy.stats.binom.interval(CHANCE, count, probability)
    return lower / count, upper / count
