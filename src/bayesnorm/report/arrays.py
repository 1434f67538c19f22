"""Checked arrays of a report: flat, double precision, one value per test row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError

Array = NDArray[np.float64]


def per_row(name: str, values: Any, rows: int, *, endless: bool = False) -> Array:
    """Return `values` as (rows,) finite numbers. With `endless` they may be infinite, but not NaN."""
    array = np.asarray(values, dtype=np.float64)
    bad = int((np.isnan(array) if endless else ~np.isfinite(array)).sum())
    if array.shape != (rows,) or bad:
        words = "NaN" if endless else "NaN or infinite values"
        raise InputError(
            f"{name} must have shape ({rows},) and no {words}, got shape {array.shape} with {bad} of these."
        )
    return array


def flags(name: str, values: Any, rows: int) -> NDArray[np.bool_]:
    """Return `values` as (rows,) booleans."""
    array = np.asarray(values)
    if array.shape != (rows,) or array.dtype != np.bool_:
        raise InputError(f"{name} must be bool of shape ({rows},), got {array.dtype} of shape {array.shape}.")
    return array


def flat(values: Tensor) -> Array:
    """Return a tensor with one value per row, (N,) or (N, 1), as an array (N,)."""
    return np.asarray(values.detach().reshape(-1).double().cpu().numpy())
