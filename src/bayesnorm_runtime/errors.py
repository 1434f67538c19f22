"""Errors that this package and `bayesnorm` share; every message names what is wrong, what was found and what to do."""

from __future__ import annotations

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


class InputError(BayesNormError):
    """Raised if an array from the caller (training data, `x` or `y`) cannot be used."""


class NotComparableError(BayesNormError):
    """Raised if new data cannot be compared with training batches: too few examples, or too few recorded."""


class FileFormatError(BayesNormError):
    """Raised if a file cannot be read (truncated, changed, of another format or network) or cannot be written."""
