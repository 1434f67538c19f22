"""Kinds of arguments: a good value, what the message says that it must be, and values to refuse."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bayesnorm.errors import quoted


@dataclasses.dataclass(frozen=True)
class Argument:
    """A good value of an argument, what the message says that it must be, and values to refuse."""

    good: Any
    requirement: str
    bad: tuple[Any, ...]
    name: str = ""
    """The name in the message, if it is not the keyword."""
    shown: Callable[[Any], Any] = lambda value: value
    """The value as the message shows it: the list in which it was passed, for example."""

    def message(self, keyword: str, value: Any) -> str:
        """Return the whole message that refuses a value."""
        described = type(value).__name__ if self.requirement == "a function" else quoted(self.shown(value))
        return f"{self.name or keyword} must be {self.requirement}, got {described}."


def _argument(good, requirement, bad, none, but, name):
    refused = [*bad, *([] if none else [None])]
    return Argument(good, requirement, tuple(v for v in refused if not any(v is other for other in but)), name)


HUGE = 10**400


def whole(good, requirement="a whole number of at least 1", bad=(0, -1), *, none=False, but=(), name=""):
    """Describe a whole number; `bad` are numbers beyond its limits, `none` allows None, `but` is accepted as well."""
    others = (True, np.True_, 1.5, math.nan, "3", b"3", 3j)
    return _argument(good, requirement, (*bad, *others), none, but, name)


def number(good, requirement="a positive number", bad=(0, -1.0), *, none=False, but=(), name=""):
    """Describe a real number; arguments as in `whole`."""
    others = (True, np.True_, math.nan, math.inf, -math.inf, "3", b"3", 3j, HUGE)
    return _argument(good, requirement, (*bad, *others), none, but, name)


def seed():
    return whole(3, "a whole number from 0", (-1, 2**63))


def layers():
    """Describe a number of layers; text is taken for names, which another message refuses."""
    requirement = "names, a predicate, a whole number or None"
    return whole(1, requirement, (), none=True, but=("3", b"3", np.True_))


def noise(good, bad=(0, -1.0)):
    """Describe a noise parameter, which may also be a tuple of numbers."""
    return Argument(good, "positive, finite numbers", (*bad, math.nan, math.inf, -math.inf))


def function():
    """Describe a function, which may be left out."""
    return Argument(None, "a function", (3, "print"))


def accepted(good):
    """Describe a number of which only the acceptance is promised here, because other types mean something else."""
    return Argument(good, "", ())


FINITE_PER_UNIT = "a finite number or a flat tensor with one per unit"
PER_UNIT = "a positive finite number or a flat tensor with one per unit"
FROM_0 = "a number from 0"
FROM_1 = "a whole number from 1"
SAMPLES = "a whole number from 1 to 1000000"
FROM_2 = "a whole number from 2"
LEAST_2 = "a whole number of at least 2"
LEAST_0 = "a whole number of at least 0"
DF = "a finite number from 1.1 (the mean exists only above 1) to 1e+09 (practically Gaussian)"
PRIOR = "a positive number (a standard deviation), or a scale mixture (pi, std1, std2) with pi up to 1"
BATCH = "a whole number of at least 2, normally the batch size that the network was trained with"
AXIS = "-1 (the last) or 1 (channels of maps)"


class Call:
    """A public function and its arguments of these kinds; the function returns what is compared."""

    def __init__(self, function: Callable[..., Any], **arguments: Argument) -> None:
        self.function, self.arguments = function, arguments

    def __call__(self, convert: Callable[[Any], Any], **others: Any) -> Any:
        """Call the function with good values after `convert`, and with other values as they are."""
        good = {name: convert(argument.good) for name, argument in self.arguments.items() if name not in others}
        return self.function(**good, **others)
