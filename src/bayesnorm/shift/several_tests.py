"""Asking many questions at once: p-values that count how many were asked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEVEL = 0.05
"""The chance of a false alarm at which rows are called unlike those of training."""


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return p-values adjusted by Holm's rule: the chance that any of them is below the level stays below it."""
    given = np.asarray(p_values, dtype=float)
    order = np.argsort(given, kind="stable")
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)))
    return adjusted
