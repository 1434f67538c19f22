"""Arrays with one value per test row: checks, and how clearly their mean differs from zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError

Array = NDArray[np.float64]

# Number of standard errors from which a difference is called statistically significant.
CLEAR = 2.0


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


def standard_errors_from_zero(differences: Array) -> float:
    """Return the mean of the differences divided by its standard error; 0 for fewer than two rows, or if all are 0.

    With few rows the standard error is uncertain as well. So the ratio, which is Student's t, is converted to the
    normal deviate of the same probability.
    """
    peak = float(abs(differences).max(initial=0.0))
    if len(differences) < 2 or peak == 0:
        return 0.0
    differences = differences / peak  # so that squares neither overflow nor vanish
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    mean = float(differences.mean())
    ratio = abs(mean) / error if error else math.inf
    return math.copysign(-scipy.special.ndtri(scipy.special.stdtr(len(differences) - 1, -ratio)), mean)
