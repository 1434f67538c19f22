"""Constructor parameters of the estimators, checked before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import as_number, as_whole, require_positive
from ..errors import BayesNormError
from .networks import METHODS


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
    require_positive("learning_rate", values["learning_rate"])
    _each("batch_size", values["batch_size"], lambda v: _whole(v, 2), "whole numbers from 2")
    _each("weight_decay", values["weight_decay"], lambda v: _positive(v) or as_number(v) == 0, "numbers from 0")
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


def _each(name: str, value: Any, good: Any, works: str) -> None:
    several = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    values = value if several else [value]
    if value is not None and (not len(values) or not all(good(each) for each in values)):
        raise BayesNormError(f"{name}: {value!r} was given; None, or {works}, one or several, would work.")


def _whole(value: Any, least: int) -> bool:
    found = as_whole(value)
    return found is not None and found >= least


def _positive(value: Any) -> bool:
    found = as_number(value)
    return found is not None and 0 < found < math.inf
