"""Constructor parameters and training rows, checked."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse  # type: ignore[import-untyped]
from sklearn.utils.validation import check_array
from torch import Tensor

from ..errors import BayesNormError, InputError
from .networks import METHODS

LEAST_ROWS = 8


@contextlib.contextmanager
def as_input_errors() -> Iterator[None]:
    """What scikit-learn finds wrong with a table or its targets, as errors of this package."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None


def check_parameters(parameters: dict[str, Any]) -> None:
    """Refuse what no parameter may be; those that only one of the estimators has may be absent."""
    values = {"precision": None, "temperature": None, "heteroscedastic": False, **parameters}
    if values["method"] not in METHODS:
        raise BayesNormError(f"method: {values['method']!r} was given; one of {', '.join(METHODS)} would work.")
    hidden = values["hidden"]
    if (
        not isinstance(hidden, Sequence | np.ndarray)
        or not len(hidden)
        or not all(_whole(units, 1) for units in hidden)
    ):
        raise BayesNormError(f"hidden: {hidden!r} was given; units per hidden layer, such as (50, 50), would work.")
    for name in ("epochs", "max_epochs", "patience"):
        if values[name] is not None and not _whole(values[name], 1):
            raise BayesNormError(f"{name}: {values[name]!r} was given; None or a whole number from 1 would work.")
    for name, least in {"draws": 2, "members": 2, "verbose": 0}.items():
        if not _whole(values[name], least) and not (name == "verbose" and isinstance(values[name], bool)):
            raise BayesNormError(f"{name}: {values[name]!r} was given; a whole number from {least} would work.")
    if values["folds"] is not None and not _whole(values["folds"], 2):
        raise BayesNormError(f"folds: {values['folds']!r} was given; None or a whole number from 2 would work.")
    if not _positive(values["learning_rate"]):
        raise BayesNormError(f"learning_rate: {values['learning_rate']!r} was given; a positive number would work.")
    _each("batch_size", values["batch_size"], lambda v: _whole(v, 2), "whole numbers from 2")
    _each("weight_decay", values["weight_decay"], lambda v: _positive(v) or (_number(v) and v == 0), "numbers from 0")
    _each("dropout_rate", values["dropout_rate"], lambda v: _positive(v) and v < 1, "rates between 0 and 1")
    if values["dropout_rate"] is not None and values["method"] != "dropout":
        raise BayesNormError(f'dropout_rate: was given with method={values["method"]!r}; method="dropout" would work.')
    for name in ("precision", "temperature"):
        if values[name] is not None and not _positive(values[name]):
            raise BayesNormError(f"{name}: {values[name]!r} was given; None or a positive number would work.")
    if not isinstance(values["heteroscedastic"], bool | np.bool_):
        raise BayesNormError(f"heteroscedastic: {values['heteroscedastic']!r} was given; True or False would work.")
    if values["heteroscedastic"] and values["precision"] is not None:
        raise BayesNormError("precision: was given with heteroscedastic=True, where networks predict it; one of both.")
    score = "crps" if "precision" in parameters else "nll"
    size = values["effective_batch_size"]
    if size not in (score, "elbo", None) and not _positive(size):
        raise BayesNormError(
            f'effective_batch_size: {size!r} was given; "{score}", "elbo", None or a positive number would work.'
        )
    if values["folds"] is None:
        _check_nothing_open(values, score)


def _check_nothing_open(values: dict[str, Any], score: str) -> None:
    names = ["weight_decay", "batch_size", "epochs", "precision" if score == "crps" else "temperature"]
    names = [name for name in names if not (name == "precision" and values["heteroscedastic"])]
    names += ["dropout_rate"] * (values["method"] == "dropout")
    open_ones = [name for name in names if values[name] is None or isinstance(values[name], Sequence | np.ndarray)]
    if values["effective_batch_size"] == score and values["method"] not in ("dropout", "ensemble"):
        open_ones.append("effective_batch_size")
    if open_ones:
        raise BayesNormError(f"folds: None was given, but {', '.join(open_ones)} would have to be chosen; give them.")


def check_frame(X: Any) -> None:
    """Refuse what no table may be, before anything is made of it."""
    if issparse(X):
        raise InputError("X: is sparse, and sparse data is not supported; X.toarray() would work.")
    if isinstance(X, pd.DataFrame):
        twice = X.columns[X.columns.duplicated()]
        if len(twice):
            raise InputError(f"X: column {str(twice[0])!r} is there twice; rename one of them.")
        if not X.shape[1] or not len(X):
            check_array(np.zeros(X.shape))  # scikit-learn's words


def real_targets(y: Any) -> NDArray[np.float64]:
    """Targets as numbers, (rows,) or (rows, outputs)."""
    values = check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
    try:
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        bad = next(value for value in values.ravel() if isinstance(value, str) or not np.isreal(value))
        raise InputError(
            f"y: holds {str(bad)!r}, which is no number; numbers would work, and BayesNormClassifier is for classes."
        ) from None
    if found.ndim not in (1, 2) or not found.size:
        raise InputError(f"y: has shape {found.shape}; (rows,) or (rows, outputs) would work.")
    check_array(found, ensure_2d=False, input_name="y")
    return found


def row_weights(sample_weight: Any, rows: int) -> tuple[NDArray[np.int64], Tensor | None]:
    """Numbers of the rows that count, and their weights with mean 1; None where all weigh the same."""
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


def require_rows(rows: int) -> None:
    """Enough of them to hold some out."""
    if rows < LEAST_ROWS:
        raise InputError(
            f"X: has n_samples={rows} rows (with a weight), too few to learn from some and check on others; at least "
            f"{LEAST_ROWS} would work."
        )


def _each(name: str, value: Any, good: Any, works: str) -> None:
    several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    values = value if several else [value]
    if value is not None and (not len(values) or not all(good(each) for each in values)):
        raise BayesNormError(f"{name}: {value!r} was given; None, or {works}, one or several, would work.")


def _number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def _positive(value: Any) -> bool:
    return _number(value) and bool(0 < value < math.inf)
