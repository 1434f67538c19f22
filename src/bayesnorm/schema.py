"""Describe and check the content of a file before anything is built from it.

Checks describe JSON values, such as `record(rows=whole(1), center=one_of("running", "batch"))`, and an `Array`
describes each tensor. A check takes a value and the name of its place in the file. It raises a `FileFormatError` that
names the place if the value does not fit, however hostile the value is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from .arguments import as_number, as_whole
from .errors import FileFormatError, quoted

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)

# Floating-point numbers hold all whole numbers up to this one exactly.
LARGEST_WHOLE = 2**53


@dataclass(frozen=True)
class Check:
    """A description of JSON values.

    Args:
        require: Function of a value and the name of its place; raises an error if the value does not fit.
        may_lack: Whether a record may omit the value.
    """

    require: Callable[[Any, str], None]
    may_lack: bool = False

    def __call__(self, value: Any, where: str) -> None:
        self.require(value, where)


def refuse(where: str, value: Any, works: str) -> NoReturn:
    """Raise the error for a value that does not fit; `works` says what it must be."""
    raise FileFormatError(f"path: {where} is {quoted(value)} in the file, but must be {works.rstrip(',')}.")


def whole(least: int = 0, most: int = LARGEST_WHOLE) -> Check:
    """Describe a whole number between limits."""

    @Check
    def check(value: Any, where: str) -> None:
        whole_value = as_whole(value)
        if whole_value is None or not least <= whole_value <= most:
            refuse(
                where, value, f"the whole number {least}" if least == most else f"a whole number from {least} to {most}"
            )

    return check


def number(least: float = -math.inf, most: float = math.inf, *, above: float = -math.inf) -> Check:
    """Describe a finite number between limits; `above` itself is not allowed."""
    limits = {"from": least, "above": above, "up to": most}
    words = " and ".join(f"{word} {limit:g}" for word, limit in limits.items() if math.isfinite(limit))

    @Check
    def check(value: Any, where: str) -> None:
        number_value = as_number(value)
        if (
            number_value is None
            or not math.isfinite(number_value)
            or not least <= number_value <= most
            or number_value <= above
        ):
            refuse(where, value, f"a finite number {words}".rstrip())

    return check


@Check
def text(value: Any, where: str) -> None:
    """Check that a value is text."""
    if not isinstance(value, str):
        refuse(where, value, "text")


@Check
def flag(value: Any, where: str) -> None:
    """Check that a value is true or false."""
    if not isinstance(value, bool):
        refuse(where, value, "true or false")


def just(expected: bool | None) -> Check:
    """Describe exactly one of true, false and null."""

    @Check
    def check(value: Any, where: str) -> None:
        if value is not expected:
            refuse(where, value, {True: "true", False: "false", None: "null"}[expected])

    return check


@Check
def anything(value: Any, where: str) -> None:
    """Accept every value, such as one that is checked later."""


def one_of(*values: str) -> Check:
    """Describe one of several strings."""

    @Check
    def check(value: Any, where: str) -> None:
        if not isinstance(value, str) or value not in values:
            refuse(where, value, f"one of {', '.join(values)}")

    return check


def optional(present: Check) -> Check:
    """Describe a value that may be null."""
    return Check(lambda value, where: None if value is None else present(value, where))


def later(present: Check) -> Check:
    """Describe a field of a record that files of earlier versions do not have."""
    return Check(present.require, may_lack=True)


def either(first: type, one: Check, other: Check) -> Check:
    """Describe values of the JSON type `first` by one check and all others by another."""
    return Check(lambda value, where: (one if isinstance(value, first) else other)(value, where))


def listed(check_entry: Check, least: int = 0, most: int = LARGEST_WHOLE) -> Check:
    """Describe a list with a number of entries between limits."""

    @Check
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            refuse(where, value, "a list")
        whole(least, most)(len(value), f"the length of {where}")
        for i, entry in enumerate(value):
            check_entry(entry, f"{where}[{i}]")

    return check


def mapping(check_entry: Check, least: int = 0) -> Check:
    """Describe an object with arbitrary names and values of one kind."""

    @Check
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict) or len(value) < least:
            refuse(where, value, f"an object with at least {least} entries")
        for name, entry in value.items():
            check_entry(entry, f"{where}.{name[:60]}")

    return check


def record(**fields: Check) -> Check:
    """Describe an object with exactly these fields."""
    needed = {name for name, field in fields.items() if not field.may_lack}

    @Check
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict) or not needed <= value.keys() <= fields.keys():
            refuse(
                where,
                list(value) if isinstance(value, dict) else value,
                f"an object with the fields {', '.join(fields)}",
            )
        for name, entry in value.items():
            fields[name](entry, f"{where}.{name}")

    return check


def with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record with tuples for lists, as dataclasses hold them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


@dataclass(frozen=True, eq=False)
class Array:
    """Describe a tensor: values are at least `least` and have finite squares (variances must only be finite).

    Args:
        shape: The sizes; None for any size from 1.
        dtypes: The allowed dtypes.
        least: The smallest allowed value.
        like: A tensor of the same shape; values equal to it (such as masks) need no finite squares.
        empty: Whether free sizes may be 0.
    """

    shape: tuple[int | None, ...]
    dtypes: Collection[torch.dtype] = FLOATS
    least: float = -math.inf
    like: Tensor | None = None
    empty: bool = False

    def require(self, tensor: Tensor, where: str) -> None:
        """Raise an error if a tensor does not fit this description."""
        shape = tuple(tensor.shape)
        fits = (n >= 1 - self.empty if size is None else n == size for n, size in zip(shape, self.shape, strict=False))
        if len(shape) != len(self.shape) or not all(fits):
            refuse(where, shape, f"of shape {tuple('any' if size is None else size for size in self.shape)}")
        if tensor.dtype not in self.dtypes:
            refuse(where, tensor.dtype, f"one of {', '.join(map(str, self.dtypes))}")
        if tensor.is_floating_point():
            most = torch.finfo(tensor.dtype).max
            if self.least < 0 and tensor.dtype != torch.float16:  # its largest number is small
                most = math.sqrt(most)
            odd = ~(tensor.abs() <= most)
            if bool(odd.any()) and (self.like is None or not torch.equal(tensor[odd].to(self.like), self.like[odd])):
                refuse(where, "NaN, infinite or too large", f"values up to {most:g}")
        if self.least > -math.inf and tensor.numel() and float(tensor.min()) < self.least:
            refuse(where, float(tensor.min()), f"values from {self.least:g}")


def arrays_like(tensors: Mapping[str, Tensor], floats: Collection[torch.dtype] = FLOATS) -> dict[str, Array]:
    """Describe the parameters and buffers of a network; a file may hold them in another precision."""
    return {
        name: Array(
            tuple(tensor.shape),
            floats if tensor.is_floating_point() else (tensor.dtype,),
            0.0 if name.endswith("running_var") else -math.inf,
            tensor.detach(),
        )
        for name, tensor in tensors.items()
    }


def require_tensors(tensors: Mapping[str, Tensor], expected: Mapping[str, Array]) -> None:
    """Raise an error if the tensors are not exactly the expected ones."""
    for name in [*expected, *tensors]:
        if name not in tensors or name not in expected:
            here = "lacks" if name in expected else "has"
            raise FileFormatError(
                f"path: the file {here} the tensor {quoted(name)}, so it does not fit this network or format."
            )
    for name, array in expected.items():
        array.require(tensors[name], name[:60])
