"""Arrays as a report keeps them: flat, finite, double precision, one value per test row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError

Array = NDArray[np.float64]


def per_row(name: str, values: Any, rows: int) -> Array:
    """Return `values` as (rows,) finite numbers, or raise an error."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (rows,) or not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise InputError(
            f"{name}: has shape {array.shape} and {bad} NaN or infinite values; ({rows},) and 0 would work."
        )
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
