"""Adjust p-values for multiple testing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LEVEL = 0.05
"""The false-alarm rate of the drift test: below this p-value, data differ from the training distribution."""


def holm(p_values: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return p-values adjusted by Holm's method, which bounds the probability of any false alarm by the level."""
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return adjusted
