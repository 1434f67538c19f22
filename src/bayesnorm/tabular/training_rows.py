"""Check the table, targets, weights and groups of training rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array
from torch import Tensor

from ..errors import InputError, quoted

# Smallest number of rows for training and validation.
LEAST_ROWS = 8


@contextlib.contextmanager
def as_input_errors() -> Iterator[None]:
    """Turn scikit-learn's errors about a table or its targets into errors of this package."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None


def check_frame(X: Any) -> None:
    """Raise an error for sparse tables, columns of the same name, and tables without rows or columns."""
    if issparse(X):
        raise InputError("X is sparse, but sparse data is not supported. Pass X.toarray().")
    if isinstance(X, pd.DataFrame):
        twice = X.columns[X.columns.duplicated()]
        if len(twice):
            raise InputError(f"X has two columns called {quoted(str(twice[0]))}. Rename one of them.")
        if not X.shape[1] or not len(X):
            check_array(np.zeros(X.shape))  # raises scikit-learn's error


def real_targets(y: Any) -> NDArray[np.float64]:
    """Return targets as numbers, (rows,) or (rows, outputs), or raise an error."""
    values = check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
    try:
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        bad = next(value for value in values.ravel() if isinstance(value, str) or not np.isreal(value))
        raise InputError(
            f"y contains {quoted(str(bad))}, which is not a number. Pass numbers, or use BayesNormClassifier for "
            "classes."
        ) from None
    if found.ndim not in (1, 2) or not found.size:
        raise InputError(f"y must have the shape (rows,) or (rows, outputs), got {found.shape}.")
    check_array(found, ensure_2d=False, input_name="y")
    return found


def row_weights(sample_weight: Any, rows: int) -> tuple[NDArray[np.int64], Tensor | None]:
    """Return the numbers of rows with a weight, and their weights with mean 1; None for equal weights."""
    if sample_weight is None:
        return np.arange(rows), None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be numbers of at least 0, got something else ({error}).") from None
    if weights.ndim == 0:
        weights = np.full(rows, float(weights))
    if weights.shape != (rows,):
        raise InputError(f"sample_weight has the shape {weights.shape} for {rows} rows. Pass one number per row.")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("sample_weight contains negative, infinite or missing numbers. Pass numbers of at least 0.")
    if not weights.any():
        raise InputError("sample_weight is zero for every row. Pass a positive weight for some rows.")
    kept = np.flatnonzero(weights)
    weights = weights[kept] / weights[kept].mean()
    return kept, None if np.allclose(weights, 1.0) else torch.from_numpy(weights)


def row_groups(groups: Any, rows: int, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group number of each kept row, from labels of any type for all rows."""
    labels = np.asarray(groups)
    if labels.shape != (rows,):
        raise InputError(f"groups has the shape {labels.shape} for {rows} rows. Pass one label per row.")
    found: NDArray[np.int64] = np.unique(labels[kept].astype(str), return_inverse=True)[1]
    if found.max() < 1:
        raise InputError(
            f"groups has only one group, {quoted(str(labels[0]))}, for all rows. Pass at least two groups."
        )
    return found


def require_rows(rows: int) -> None:
    """Raise an error if there are too few rows for cross-validation."""
    if rows < LEAST_ROWS:
        raise InputError(
            f"X has n_samples={rows} rows with a weight, too few for training and validation. Pass at least "
            f"{LEAST_ROWS} rows."
        )
