"""Numbers as arguments: plain ones or NumPy's, taken alike everywhere and kept as plain ones."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import numpy as np

from .errors import BayesNormError, quoted


def as_whole(value: Any) -> int | None:
    """Return a whole number of any type as a plain one; None for anything else, such as truth values and arrays."""
    if isinstance(value, bool) or hasattr(value, "__len__"):  # arrays and tensors that hold one number have an index
        return None
    try:
        return int(operator.index(value))
    except TypeError:
        return None


def require_whole(
    name: str,
    value: Any,
    least: int = 1,
    most: int | None = None,
    *,
    words: str | None = None,
    error: type[BayesNormError] = BayesNormError,
) -> int:
    """Return a whole number between limits as a plain one, or raise an error that names the argument.

    Args:
        name: The argument's name.
        value: What was given for it.
        least: The smallest number that works.
        most: The largest number that works; None for no limit.
        words: What the message says after "<name>: <value> was given"; None tells the limits.
        error: The class of the error.
    """
    found = as_whole(value)
    if found is None or found < least or (most is not None and found > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        words = f"; a whole number {limits} would work." if words is None else words
        raise error(f"{name}: {quoted(value)} was given{words}")
    return found


def as_number(value: Any) -> float | None:
    """Return a real number, of Python's or NumPy's types, as a plain float; None for anything else."""
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None


def require_number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    words: str | None = None,
    error: type[BayesNormError] = BayesNormError,
) -> float:
    """Return a finite number between limits as a plain float, or raise an error that names the argument.

    Args:
        name: The argument's name.
        value: What was given for it.
        least, most: The smallest and the largest number that work.
        above, below: Limits that do not work themselves.
        words: What the message says after "<name>: <value> was given"; None tells the limits.
        error: The class of the error.
    """
    found = as_number(value)
    if found is None or not (least <= found <= most and above < found < below):
        limits = (("from", least), ("above", above), ("up to", most), ("below", below))
        told = " and ".join(f"{word} {limit:g}" for word, limit in limits if math.isfinite(limit))
        words = f"; a {f'number {told}' if told else 'finite number'} would work." if words is None else words
        raise error(f"{name}: {quoted(value)} was given{words}")
    return found


def require_positive(
    name: str, value: Any, *, words: str | None = None, error: type[BayesNormError] = BayesNormError
) -> float:
    """Return a positive, finite number as a plain float, or raise an error; arguments as in `require_number`."""
    words = "; a positive number would work." if words is None else words
    return require_number(name, value, above=0, words=words, error=error)


def require_seed(seed: Any) -> int:
    """Return a whole number in the range that every generator takes, or raise an error."""
    return require_whole("seed", seed, 0, 2**63 - 1, words="; a whole number from 0 would work.")


def require_function(name: str, value: Any) -> None:
    """Refuse what is neither None nor a function."""
    if value is not None and not callable(value):
        raise BayesNormError(f"{name}: {type(value).__name__} was given; a function would work.")


def hold_plain_numbers(instance: Any) -> None:
    """Replace numbers of other types in a frozen dataclass by plain ones, as JSON wants them; for `__post_init__`."""
    for name, value in list(vars(instance).items()):
        whole = as_whole(value)
        found = as_number(value) if whole is None else whole
        if found is not None:
            object.__setattr__(instance, name, found)
