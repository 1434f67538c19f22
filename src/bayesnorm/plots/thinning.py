"""A choice of some of many points to show."""

from __future__ import annotations

import numpy as np


def spread_out(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the numbers 0 ... count - 1, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
