"""Select rows of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bayesnorm.errors import BayesNormError

Rows: TypeAlias = int | slice | Sequence[int] | NDArray[np.integer[Any]] | None
"""The images to load: the first n (an int), a slice, indices, or all (None)."""


def row_numbers(rows: Rows, count: int, hint: str = "") -> NDArray[np.intp]:
    """Return `rows` as indices between 0 and `count` - 1; errors about missing rows end with `hint`."""
    if rows is None:
        return np.arange(count)
    if isinstance(rows, slice):
        return np.arange(count)[rows]
    if isinstance(rows, (int, np.integer)) and not isinstance(rows, bool):
        if not 1 <= rows <= count:
            raise BayesNormError(f"rows must be a number of images from 1 to {count}, got {rows}.{hint}")
        return np.arange(rows)
    chosen = np.asarray(rows)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise BayesNormError(
            f"rows must be None, a number of images, a slice or indices, got {type(rows).__name__} of shape "
            f"{chosen.shape} and type {chosen.dtype}."
        )
    if chosen.size and not (chosen.min() >= 0 and chosen.max() < count):
        raise BayesNormError(
            f"rows must be between 0 and {count - 1}, got values from {chosen.min()} to {chosen.max()}.{hint}"
        )
    return chosen.astype(np.intp)
