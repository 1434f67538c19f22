"""Check numeric arguments: Python and NumPy numbers are accepted alike and stored as Python numbers."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import numpy as np

from .errors import BayesNormError, quoted


def as_whole(value: Any) -> int | None:
    """Return a whole number of any type as an int, or None for anything else, such as booleans and arrays."""
    if isinstance(value, bool | np.bool_) or hasattr(value, "__len__"):  # arrays of one number support __index__
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
    requirement: str | None = None,
    error: type[BayesNormError] = BayesNormError,
) -> int:
    """Return a whole number between limits as an int, or raise an error that names the argument.

    Args:
        name: The name of the argument.
        value: The value of the argument.
        least: The smallest number allowed.
        most: The largest number allowed; None for no limit.
        requirement: What the value must be, for the message; None describes the limits.
        error: The class of the error.
    """
    number = as_whole(value)
    if number is None or number < least or (most is not None and number > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise error(f"{name} must be {requirement or f'a whole number {limits}'}, got {quoted(value)}.")
    return number


def as_number(value: Any) -> float | None:
    """Return a real number of a Python or NumPy type as a float, or None for anything else."""
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return None


def require_number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
    requirement: str | None = None,
    error: type[BayesNormError] = BayesNormError,
) -> float:
    """Return a finite number between limits as a float, or raise an error that names the argument.

    Args:
        name: The name of the argument.
        value: The value of the argument.
        least, most: The smallest and the largest number allowed.
        above, below: Limits that are themselves not allowed.
        requirement: What the value must be, for the message; None describes the limits.
        error: The class of the error.
    """
    number = as_number(value)
    if number is None or not (least <= number <= most and above < number < below):
        bounds = (("from", least), ("above", above), ("up to", most), ("below", below))
        limits = " and ".join(f"{word} {limit:g}" for word, limit in bounds if math.isfinite(limit))
        requirement = requirement or (f"a number {limits}" if limits else "a finite number")
        raise error(f"{name} must be {requirement}, got {quoted(value)}.")
    return number


def require_positive(
    name: str, value: Any, *, requirement: str | None = None, error: type[BayesNormError] = BayesNormError
) -> float:
    """Return a positive, finite number as a float, or raise an error; arguments as in `require_number`."""
    return require_number(name, value, above=0, requirement=requirement or "a positive number", error=error)


def require_seed(seed: Any) -> int:
    """Return a seed that every random generator accepts as an int, or raise an error."""
    return require_whole("seed", seed, 0, 2**63 - 1, requirement="a whole number from 0")


def require_function(name: str, value: Any) -> None:
    """Raise an error if a value is neither None nor a function."""
    if value is not None and not callable(value):
        raise BayesNormError(f"{name} must be a function, got {type(value).__name__}.")


def require_flag(name: str, value: Any) -> None:
    """Raise an error if a value is neither True nor False."""
    if not isinstance(value, bool):
        raise BayesNormError(f"{name} must be True or False, got {value!r}.")


def hold_plain_numbers(instance: Any) -> None:
    """Convert numbers in a frozen dataclass to int or float, which JSON can store; for `__post_init__`."""
    for name, value in list(vars(instance).items()):
        whole = as_whole(value)
        number = as_number(value) if whole is None else whole
        if number is not None:
            object.__setattr__(instance, name, number)
