"""Choose a part of many points to draw."""

from __future__ import annotations

import numpy as np


def spread_out(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the numbers 0 ... count - 1, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
