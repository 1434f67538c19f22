"""What goes wrong, told kindly: every message names the argument, what was found and what would work."""

from __future__ import annotations

from typing import Any

# Characters of a longer value that a message quotes, and of a longer message its beginning and its end.
QUOTED, BEGINNING, END = 60, 600, 300


def quoted(value: Any) -> str:
    """Return a value of the user's as Python would write it; of a long one, its first characters and its length."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        text = f"a long {type(value).__name__}"
    if len(text) <= 2 * QUOTED:
        return text
    if isinstance(value, str):
        return f"{value[:QUOTED]!r}... ({len(value):,} characters)"
    return f"{text[:QUOTED]}... ({len(text):,} characters)"


def shortened(message: str) -> str:
    """Return a message without the middle of a long one: names stand at its beginning, what would work at its end."""
    left_out = len(message) - BEGINNING - END
    if left_out <= 100:
        return message
    return f"{message[:BEGINNING]}... ({left_out:,} characters left out) ...{message[-END:]}"


class BayesNormError(ValueError):
    """Base of every error that this package raises on purpose; its message is short, whatever it quotes."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*(shortened(each) if isinstance(each, str) else each for each in arguments))


class NetworkError(BayesNormError):
    """The network cannot be used: no batch norm, broken weights, or its forward failed."""


class WeightsChangedError(NetworkError):
    """The network's weights changed while it ran, as by training in another thread."""


class InputError(BayesNormError):
    """An array given by the caller (training data, `x` or `y`) cannot be used."""


class NotComparableError(BayesNormError):
    """New rows cannot be compared with training batches: too little is known of these, or the rows are too few."""


class NotFiniteError(BayesNormError):
    """A prediction is not finite, because an input, the noise or the effective batch size is too extreme."""


class FileFormatError(BayesNormError):
    """A file cannot be used: it is truncated, foreign, altered or of another network, or could not be written."""


class DataNotFoundError(BayesNormError):
    """A data set is in none of the data folders."""


class MissingExtraError(BayesNormError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class BayesNormWarning(UserWarning):
    """Something works, but not as well as it could; said once."""
