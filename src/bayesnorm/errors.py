"""Errors and warnings of the package; every message names what is wrong, what was found and what to do."""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

# How many characters of a long value are quoted, and how much of a long message is kept at its start and end.
QUOTED, BEGINNING, END = 60, 600, 300


def quoted(value: Any) -> str:
    """Return the repr of a value; a long one is cut to its first characters, followed by its length."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # numbers with thousands of digits, deeply nested lists
        text = f"a long {type(value).__name__}"
    if len(text) <= 2 * QUOTED:
        return text
    if isinstance(value, str):
        return f"{value[:QUOTED]!r}... ({len(value):,} characters)"
    return f"{text[:QUOTED]}... ({len(text):,} characters)"


def shortened(message: str) -> str:
    """Return a message, without its middle if it is long: names are at the start and the advice is at the end."""
    left_out = len(message) - BEGINNING - END
    if left_out <= 100:
        return message
    return f"{message[:BEGINNING]}... ({left_out:,} characters left out) ...{message[-END:]}"


class BayesNormError(ValueError):
    """Base class of every error that this package raises on purpose; long messages are shortened."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*(shortened(argument) if isinstance(argument, str) else argument for argument in arguments))


class NetworkError(BayesNormError):
    """Raised if the network cannot be used: no batch norm, invalid weights, or a failing forward pass."""


class WeightsChangedError(NetworkError):
    """Raised if the network's weights change during a call, for example by training in another thread."""


class InputError(BayesNormError):
    """Raised if an array from the caller (training data, `x` or `y`) cannot be used."""


class NotComparableError(BayesNormError):
    """Raised if new data cannot be compared with training batches: too few examples, or too few recorded."""


class NotFiniteError(BayesNormError):
    """Raised if a prediction is not finite because an input, the noise or the effective batch size is too extreme."""


class FileFormatError(BayesNormError):
    """Raised if a file cannot be read (truncated, changed, of another format or network) or cannot be written."""


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
