"""Constructor parameters of the estimators, checked before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arguments import as_number, as_whole, require_positive, require_whole
from ..errors import BayesNormError
from .networks import METHODS

# Networks that a prediction may be averaged over.
MOST_DRAWS = 2**16


def check_parameters(parameters: dict[str, Any]) -> None:
    """Refuse values that a parameter cannot have, and parameters that exclude each other.

    Args:
        parameters: Those of a regressor or a classifier; what only the other one has may be absent.
    """
    values = {"precision": None, "temperature": None, "heteroscedastic": False, **parameters}
    method, score = values["method"], "crps" if "precision" in parameters else "nll"
    if method not in METHODS:
        raise BayesNormError(f"method: {method!r} was given; one of {', '.join(METHODS)} would work.")
    _check_network_and_training(values)
    for name in ("precision", "temperature"):
        if values[name] is not None:
            require_positive(name, values[name], words="; None or a positive number would work.")
    if values["dropout_rate"] is not None and method != "dropout":
        raise BayesNormError(f'dropout_rate: was given with method={method!r}; method="dropout" would work.')
    if not isinstance(values["heteroscedastic"], bool | np.bool_):
        raise BayesNormError(f"heteroscedastic: {values['heteroscedastic']!r} was given; True or False would work.")
    if values["heteroscedastic"] and values["precision"] is not None:
        raise BayesNormError("precision: was given with heteroscedastic=True, where networks predict it; one of both.")
    size = values["effective_batch_size"]
    if size not in (score, "elbo", None) and not _is_positive(size):
        raise BayesNormError(
            f'effective_batch_size: {size!r} was given; "{score}", "elbo", None or a positive number would work.'
        )
    if values["folds"] is None:
        _require_nothing_open(values, score)


def _check_network_and_training(values: dict[str, Any]) -> None:
    """Refuse what no network can be built or trained with."""
    hidden = values["hidden"]
    if not _is_several(hidden) or not len(hidden) or not all(_is_whole(units, 1) for units in hidden):
        raise BayesNormError(f"hidden: {hidden!r} was given; units per hidden layer, such as (50, 50), would work.")
    for name, least in {"epochs": 1, "max_epochs": 1, "patience": 1, "folds": 2}.items():
        if values[name] is not None:
            words = f"; None or a whole number from {least} would work."
            require_whole(name, values[name], least, words=words)
    for name, (least, most) in {"draws": (2, MOST_DRAWS), "members": (2, MOST_DRAWS), "verbose": (0, None)}.items():
        if not (name == "verbose" and isinstance(values[name], bool)):
            limits = f"from {least}" if most is None else f"from {least} to {most}"
            require_whole(name, values[name], least, most, words=f"; a whole number {limits} would work.")
    require_positive("learning_rate", values["learning_rate"])
    _require_each("batch_size", values["batch_size"], lambda size: _is_whole(size, 2), "whole numbers from 2")
    _require_each("weight_decay", values["weight_decay"], _is_positive_or_zero, "numbers from 0")
    _require_each(
        "dropout_rate", values["dropout_rate"], lambda rate: _is_positive(rate) and rate < 1, "rates between 0 and 1"
    )


def _require_nothing_open(values: dict[str, Any], score: str) -> None:
    """Refuse to skip cross-validation where it would have something to choose."""
    noise = "precision" if score == "crps" else "temperature"
    names = ["weight_decay", "batch_size", "epochs"]
    names += [noise] * (not values["heteroscedastic"])
    names += ["dropout_rate"] * (values["method"] == "dropout")
    open_ones = [name for name in names if values[name] is None or _is_several(values[name])]
    if values["effective_batch_size"] == score and values["method"] not in ("dropout", "ensemble"):
        open_ones.append("effective_batch_size")
    if open_ones:
        raise BayesNormError(f"folds: None was given, but {', '.join(open_ones)} would have to be chosen; give them.")


def _require_each(name: str, value: Any, is_good: Callable[[Any], bool], works: str) -> None:
    """Refuse a parameter unless it is None, a good value, or several good values to choose from."""
    values = value if _is_several(value) and not isinstance(value, str) else [value]
    if value is not None and (not len(values) or not all(is_good(each) for each in values)):
        raise BayesNormError(f"{name}: {value!r} was given; None, or {works}, one or several, would work.")


def _is_several(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray)


def _is_whole(value: Any, least: int) -> bool:
    found = as_whole(value)
    return found is not None and found >= least


def _is_positive(value: Any) -> bool:
    found = as_number(value)
    return found is not None and 0 < found < math.inf


def _is_positive_or_zero(value: Any) -> bool:
    return _is_positive(value) or as_number(value) == 0
