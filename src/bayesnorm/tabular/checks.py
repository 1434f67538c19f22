"""Check the parameters of an estimator, and the table, targets, weights and groups of training rows."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import check_array
from torch import Tensor

from ..arguments import as_number, as_whole, require_positive, require_whole
from ..errors import BayesNormError, InputError, quoted
from .networks import BATCH_STATISTICS, METHODS, parsed_encoding

# Largest number of samples of a prediction.
MOST_SAMPLES = 2**16


def check_parameters(parameters: dict[str, Any]) -> None:
    """Raise an error for invalid parameters, and for parameters that exclude each other.

    Args:
        parameters: The parameters of a regressor or a classifier.
    """
    values = {"precision": None, "temperature": None, "heteroscedastic": False, "conformal": False, **parameters}
    values["is_regressor"] = "precision" in parameters
    method = values["method"]
    if method not in METHODS:
        raise BayesNormError(f"method must be one of {', '.join(METHODS)}, got {method!r}.")
    _check_network_and_training(values)
    for name in ("precision", "temperature"):
        if values[name] is not None:
            require_positive(name, values[name], requirement="None or a positive number")
    for name in ("heteroscedastic", "conformal", "fast", "interruptible", "networks_only"):
        if not isinstance(values[name], bool | np.bool_):
            raise BayesNormError(f"{name} must be True or False, got {values[name]!r}.")
    if values["heteroscedastic"] and values["precision"] is not None:
        raise BayesNormError(
            "precision cannot be combined with heteroscedastic=True, because the networks predict the noise. Pass "
            "heteroscedastic=False or precision=None."
        )
    size = values["effective_batch_size"]
    if size not in ("cross-validated", "elbo", None) and not (_is_number(size) and size > 0):
        raise BayesNormError(
            f'effective_batch_size must be "cross-validated", "elbo", None or a positive number, got {size!r}.'
        )
    device_named(values["device"])
    if values["folds"] is None:
        _require_nothing_open(values)


def device_named(name: Any) -> torch.device:
    """Return the training device, or raise an error.

    Args:
        name: "cpu", "cuda" (or another device of torch), or "auto" for a GPU if available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise BayesNormError(f'device must be "cpu", "cuda" or "auto", got {name!r}.') from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BayesNormError(f'device is {name!r}, but torch finds no GPU. Use device="cpu" or "auto".')
    return device


def _check_network_and_training(values: dict[str, Any]) -> None:
    """Raise an error for parameters with which no network can be built or trained."""
    hidden = values["hidden"]
    if hidden is not None and not (
        _is_several(hidden) and len(hidden) and all(_is_whole(units, 1) for units in hidden)
    ):
        raise BayesNormError(
            f"hidden must be None or the units of each hidden layer, such as (128, 128), got {hidden!r}."
        )
    encoding = values["encoding"]
    for name in encoding if _is_several(encoding) else [encoding]:
        if name is not None:
            parsed_encoding(name)
    for name, least in {"epochs": 1, "max_epochs": 1, "folds": 2, "members": 1}.items():
        if values[name] is not None:
            require_whole(name, values[name], least, requirement=f"None or a whole number of at least {least}")
    for name, (least, most) in {"samples": (2, MOST_SAMPLES), "verbose": (0, None)}.items():
        if not (name == "verbose" and isinstance(values[name], bool)):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            require_whole(name, values[name], least, most, requirement=f"a whole number {limits}")
    require_positive("learning_rate", values["learning_rate"])
    _require_all("batch_size", values["batch_size"], lambda size: _is_whole(size, 2), "a whole number of at least 2")
    _require_all("weight_decay", values["weight_decay"], _is_number, "a number of at least 0")
    _require_all("dropout_rate", values["dropout_rate"], lambda r: _is_number(r, 1), "a number from 0 to below 1")


def _require_nothing_open(values: dict[str, Any]) -> None:
    """Raise an error if cross-validation is skipped although it has something to choose."""
    names = ["encoding", "hidden", "weight_decay", "batch_size", "dropout_rate", "epochs"]
    if not values["heteroscedastic"]:
        names.append("precision" if values["is_regressor"] else "temperature")
    open_ones = [name for name in names if values[name] is None or (name != "hidden" and _is_several(values[name]))]
    if values["effective_batch_size"] == "cross-validated" and values["method"] in BATCH_STATISTICS:
        open_ones.append("effective_batch_size")
    if open_ones:
        raise BayesNormError(
            f"folds=None skips cross-validation, which chooses {', '.join(open_ones)}. Pass these parameters, or use "
            "folds=5."
        )


def _require_all(name: str, value: Any, is_good: Callable[[Any], bool], works: str) -> None:
    """Raise an error unless a parameter is None, a valid value, or several valid values to choose from."""
    values = value if _is_several(value) else [value]
    if value is not None and (not len(values) or not all(map(is_good, values))):
        raise BayesNormError(f"{name} must be None, {works}, or a sequence of such values, got {value!r}.")


def _is_several(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _is_whole(value: Any, least: int) -> bool:
    whole = as_whole(value)
    return whole is not None and whole >= least


def _is_number(value: Any, below: float = math.inf) -> bool:
    number = as_number(value)
    return number is not None and 0 <= number < below


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
        numbers: NDArray[np.float64] = values.astype(np.float64)
    except (TypeError, ValueError):
        bad = next(value for value in values.ravel() if isinstance(value, str) or not np.isreal(value))
        raise InputError(
            f"y contains {quoted(str(bad))}, which is not a number. Pass numbers, or use BayesNormClassifier for "
            "classes."
        ) from None
    if numbers.ndim not in (1, 2) or not numbers.size:
        raise InputError(f"y must have the shape (rows,) or (rows, outputs), got {numbers.shape}.")
    check_array(numbers, ensure_2d=False, input_name="y")
    return numbers


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
    weighted = np.flatnonzero(weights)
    weights = weights[weighted] / weights[weighted].mean()
    return weighted, None if np.allclose(weights, 1.0) else torch.from_numpy(weights)


def group_numbers(groups: Any, rows: int, weighted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group number of each row with a weight, from labels of any type for all rows."""
    labels = np.asarray(groups)
    if labels.shape != (rows,):
        raise InputError(f"groups has the shape {labels.shape} for {rows} rows. Pass one label per row.")
    texts = np.array(
        [str(label) for label in labels[weighted]], dtype=object
    )  # a fixed width would be that of the longest
    numbers: NDArray[np.int64] = pd.factorize(texts, sort=True)[0].astype(np.int64)
    if numbers.max() < 1:
        raise InputError(
            f"groups has only one group, {quoted(str(labels[0]))}, for all rows. Pass at least two groups."
        )
    return numbers


def require_enough_rows(rows: int) -> None:
    """Raise an error if there are too few rows for cross-validation."""
    if rows < LEAST_ROWS:
        raise InputError(
            f"X has n_samples={rows} rows with a weight, too few for training and validation. Pass at least "
            f"{LEAST_ROWS} rows."
        )
