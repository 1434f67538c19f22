"""Errors and warnings of the package; every message names what is wrong, what was found and what to do."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

from bayesnorm_runtime import (
    BayesNormError as BayesNormError,
    FileFormatError as FileFormatError,
    InputError as InputError,
    NotComparableError as NotComparableError,
    quoted as quoted,
    shortened as shortened,
)


class NetworkError(BayesNormError):
    """Raised if the network cannot be used: no batch norm, invalid weights, or a failing forward pass."""


class WeightsChangedError(NetworkError):
    """Raised if the network's weights change during a call, for example by training in another thread."""


class NotFiniteError(BayesNormError):
    """Raised if a prediction is not finite because an input, the noise or the effective batch size is too extreme."""


class MissingExtraError(BayesNormError, ImportError):
    """Raised if an optional dependency is not installed; the message names the packages to install."""


class BayesNormWarning(UserWarning):
    """Issued once if something works, but not as well as it could."""


# Packages whose lines no warning points to: this one, and what runs its functions.
INSIDE = ("bayesnorm", "torch", "contextlib")


def warn(message: str) -> None:
    """Issue a `BayesNormWarning` that points to the line of the user's program."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, BayesNormWarning, stacklevel=level)


def load_package(name: str, advice: str) -> Any:
    """Return an optional package or its module, or raise an error with the advice how to install it."""
    try:
        importlib.import_module(name.partition(".")[0])
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(advice) from error
