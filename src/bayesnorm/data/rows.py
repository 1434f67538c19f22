"""Which rows of a set are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import BayesNormError

Rows: TypeAlias = int | slice | Sequence[int] | NDArray[np.integer[Any]] | None
"""Which images: the first n (an int), a slice, row numbers, or all (None)."""


def row_numbers(rows: Rows, count: int, hint: str = "") -> NDArray[np.intp]:
    """Return `rows` as row numbers between 0 and `count` - 1; `hint` is added where there are not so many."""
    if rows is None:
        return np.arange(count)
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        if not 1 <= rows <= count:
            raise BayesNormError(f"rows must be between 1 and {count} images, got {rows}{hint}")
        return np.arange(rows)
    chosen = np.asarray(rows)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise BayesNormError(
            f"rows must be None, a number of images, a slice or row numbers, got {type(rows).__name__} "
            f"of shape {chosen.shape} and type {chosen.dtype}"
        )
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < count):
        raise BayesNormError(
            f"rows must lie between 0 and {count - 1}, got values from {chosen.min()} to {chosen.max()}{hint}"
        )
    return chosen.astype(np.intp)
