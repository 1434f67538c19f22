"""Tables, targets and weights of training rows, checked before anything is made of them."""

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

# Rows below which there are too few to train on some and check on others.
LEAST_ROWS = 8


@contextlib.contextmanager
def as_input_errors() -> Iterator[None]:
    """Turn what scikit-learn finds wrong with a table or its targets into errors of this package."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None


def check_frame(X: Any) -> None:
    """Refuse sparse tables, columns of the same name, and tables without rows or columns."""
    if issparse(X):
        raise InputError("X: is sparse, and sparse data is not supported; X.toarray() would work.")
    if isinstance(X, pd.DataFrame):
        twice = X.columns[X.columns.duplicated()]
        if len(twice):
            raise InputError(f"X: column {quoted(str(twice[0]))} is there twice; rename one of them.")
        if not X.shape[1] or not len(X):
            check_array(np.zeros(X.shape))  # refuses it in scikit-learn's words


def real_targets(y: Any) -> NDArray[np.float64]:
    """Return targets as numbers, (rows,) or (rows, outputs), or refuse them."""
    values = check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
    try:
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        bad = next(value for value in values.ravel() if isinstance(value, str) or not np.isreal(value))
        raise InputError(
            f"y: holds {quoted(str(bad))}, which is no number; numbers would work, and BayesNormClassifier is for "
            "classes."
        ) from None
    if found.ndim not in (1, 2) or not found.size:
        raise InputError(f"y: has shape {found.shape}; (rows,) or (rows, outputs) would work.")
    check_array(found, ensure_2d=False, input_name="y")
    return found


def row_weights(sample_weight: Any, rows: int) -> tuple[NDArray[np.int64], Tensor | None]:
    """Return numbers of the rows that count, and their weights with mean 1; None where all weigh the same."""
    if sample_weight is None:
        return np.arange(rows), None
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight: holds what is no number ({error}); numbers from 0 would work.") from None
    if weights.ndim == 0:
        weights = np.full(rows, float(weights))
    if weights.shape != (rows,):
        raise InputError(f"sample_weight: has shape {weights.shape} for {rows} rows; one number per row would work.")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("sample_weight: holds negative, infinite or missing numbers; numbers from 0 would work.")
    if not weights.any():
        raise InputError("sample_weight: every weight is zero; positive weights for some rows would work.")
    kept = np.flatnonzero(weights)
    weights = weights[kept] / weights[kept].mean()
    return kept, None if np.allclose(weights, 1.0) else torch.from_numpy(weights)


def row_groups(groups: Any, rows: int, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each kept row's group, from labels of any kind for all rows."""
    labels = np.asarray(groups)
    if labels.shape != (rows,):
        raise InputError(f"groups: has shape {labels.shape} for {rows} rows; one label per row would work.")
    found: NDArray[np.int64] = np.unique(labels[kept].astype(str), return_inverse=True)[1]
    if found.max() < 1:
        raise InputError(f"groups: all rows are in the one group {quoted(str(labels[0]))}; two or more would work.")
    return found


def require_rows(rows: int) -> None:
    """Refuse fewer rows than it takes to hold some out."""
    if rows < LEAST_ROWS:
        raise InputError(
            f"X: has n_samples={rows} rows (with a weight), too few to learn from some and check on others; at least "
            f"{LEAST_ROWS} would work."
        )
