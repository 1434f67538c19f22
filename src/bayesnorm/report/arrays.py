"""Arrays as a report keeps them: flat, double precision, one value per test row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError

Array = NDArray[np.float64]


def per_row(name: str, values: Any, rows: int, *, endless: bool = False) -> Array:
    """Return `values` as (rows,) finite numbers, which with `endless` may be infinite too, or raise an error."""
    array = np.asarray(values, dtype=np.float64)
    bad = int((np.isnan(array) if endless else ~np.isfinite(array)).sum())
    if array.shape != (rows,) or bad:
        words = "NaN" if endless else "NaN or infinite values"
        raise InputError(f"{name}: has shape {array.shape} and {bad} {words}; ({rows},) and 0 would work.")
    return array


def flags(name: str, values: Any, rows: int) -> NDArray[np.bool_]:
    """Return `values` as (rows,) booleans, or raise an error."""
    array = np.asarray(values)
    if array.shape != (rows,) or array.dtype != np.bool_:
        raise InputError(f"{name}: has shape {array.shape} and {array.dtype}; ({rows},) and bool would work.")
    return array


def flat(values: Tensor) -> Array:
    """Return a tensor of one value per row, (N,) or (N, 1), as an array."""
    return np.asarray(values.detach().reshape(-1).double().cpu().numpy())
