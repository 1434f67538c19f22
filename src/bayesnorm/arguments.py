"""Numbers as arguments: plain ones or NumPy's, taken alike everywhere and kept as plain ones."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

from .errors import BayesNormError


def as_whole(value: Any) -> int | None:
    """A whole number, of whatever type, as a plain one; None for anything else, such as truth values and arrays."""
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
    """A whole number between limits, as a plain one, or an error.

    Args:
        name: The argument's name.
        value: What was given for it.
        least: The smallest that works.
        most: The largest that works; None for no limit.
        words: What the message says after "<name>: <value> was given"; None tells the limits.
        error: What is raised.
    """
    found = as_whole(value)
    if found is None or found < least or (most is not None and found > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        words = f"; a whole number {limits} would work." if words is None else words
        raise error(f"{name}: {value!r} was given{words}")
    return found


def as_number(value: Any) -> float | None:
    """Return a real number, of Python's or NumPy's types, as a plain float; None for anything else."""
    if isinstance(value, bool) or hasattr(value, "__len__") or not isinstance(value, numbers.Real):
        return None
    return float(value)


def require_positive(name: str, value: Any, *, error: type[BayesNormError] = BayesNormError) -> float:
    """Return a positive, finite number as a plain float, or raise an error that names the argument."""
    found = as_number(value)
    if found is None or not 0 < found < math.inf:
        raise error(f"{name}: {value!r} was given; a positive number would work.")
    return found


def require_not_negative(name: str, value: Any) -> float:
    """Return zero or a positive, finite number as a plain float, or raise an error that names the argument."""
    found = as_number(value)
    if found is None or not 0 <= found < math.inf:
        raise BayesNormError(f"{name}: {value!r} was given; a number from 0 would work.")
    return found


def require_seed(seed: Any) -> int:
    """A whole number in the range that every generator takes."""
    return require_whole("seed", seed, 0, 2**63 - 1, words="; a whole number from 0 would work.")


def hold_plain_ints(instance: Any) -> None:
    """For `__post_init__` of frozen dataclasses: whole numbers of other types become plain ones, as JSON wants them."""
    for name, value in list(vars(instance).items()):
        found = as_whole(value)
        if found is not None:
            object.__setattr__(instance, name, found)
