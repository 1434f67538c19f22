"""Which stacks the kernels are for, and where a stack's tensors lie."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch
from torch import nn

from ..architecture import Activation, Dense, Drop, Layer, Norm
from ..bundle import Bundle
from ..stack import Stack

NORMALISED = (Dense, Norm, Activation, Dense, Norm, Activation, Dense)
DROPPED = (Drop, Dense, Activation, Drop, Dense, Activation, Drop, Dense)

# Units of a hidden layer, and inputs, that a multiprocessor has room for.
WIDEST = 128


@dataclass(frozen=True)
class Shape:
    """Two hidden layers of one width with ReLU, one output.

    Args:
        inputs, width: Numbers that go in, and units of each hidden layer.
        dense: Names of the three linear layers.
        norms: Names of the two batch-norm layers; empty where there is dropout instead.
        drops: Names of the three dropout layers; empty where there is batch norm instead.
        eps, momentum: Batch norm's constants.
    """

    inputs: int
    width: int
    dense: tuple[str, ...]
    norms: tuple[str, ...]
    drops: tuple[str, ...]
    eps: float = 0.0
    momentum: float = 0.0

    warps: ClassVar[int] = 8
    """Groups of 32 threads that each program has."""

    @property
    def D(self) -> int:
        """The number of inputs, padded."""
        return max(16, _power_of_two(self.inputs))

    @property
    def H(self) -> int:
        """The width, padded."""
        return max(16, _power_of_two(self.width))

    def places(self, weights: Bundle) -> dict[str, int]:
        """Return where the kernels' weights begin in a bundle's buffer."""
        first, second, last = self.dense
        named = {"w1": f"{first}.weight", "w2": f"{second}.weight", "w3": f"{last}.weight", "b3": f"{last}.bias"}
        if self.norms:
            for i, norm in enumerate(self.norms, 1):
                named |= {f"g{i}": f"{norm}.weight", f"b{i}": f"{norm}.bias"}
        else:
            named |= {"b1": f"{first}.bias", "b2": f"{second}.bias"}
        return {f"at_{short}": _offset(weights, name) for short, name in named.items()}

    def running_places(self, buffers: Bundle) -> dict[str, int]:
        """Return where running statistics begin in theirs."""
        return {
            f"at_{part}{i}": _offset(buffers, f"{norm}.running_{part}")
            for i, norm in enumerate(self.norms, 1)
            for part in ("mean", "var")
        }


def shape_of(stack: Stack) -> Shape | None:
    """Return the shape of a stack on a GPU whose networks the kernels can run; None for others."""
    if stack.device.type != "cuda" or stack.dtype != torch.float32 or not _has_triton():
        return None
    shape = fitting(stack.layers)
    # In three parts, products of wider layers need more memory than a multiprocessor has.
    return shape if shape is None or shape.H <= 64 or precision() == "tf32" else None


def fitting(layers: tuple[Layer, ...]) -> Shape | None:
    """Return the shape of networks with these layers; None if the kernels are for others."""
    kinds = tuple(type(layer) for layer in layers)
    dense = [layer for layer in layers if isinstance(layer, Dense)]
    norms = [layer for layer in layers if isinstance(layer, Norm)]
    if kinds not in (NORMALISED, DROPPED):
        return None
    first, second, last = dense
    biased = (False, False, True) if norms else (True, True, True)
    relu = all(type(layer.module) is nn.ReLU for layer in layers if isinstance(layer, Activation))
    square = first.outputs == second.inputs == second.outputs == last.inputs and last.outputs == 1
    if not relu or not square or tuple(layer.bias for layer in dense) != biased:
        return None
    if max(first.inputs, first.outputs) > WIDEST or len({(norm.eps, norm.momentum) for norm in norms}) > 1:
        return None
    return Shape(
        first.inputs,
        first.outputs,
        tuple(layer.name for layer in dense),
        tuple(norm.name for norm in norms),
        tuple(layer.name for layer in layers if isinstance(layer, Drop)),
        *((norms[0].eps, norms[0].momentum) if norms else ()),
    )


def block_rows(batch_size: int) -> int | None:
    """Return how many rows of a batch a program holds at once: 32 or 16, which must divide it; None for neither."""
    return next((rows for rows in (32, 16) if batch_size % rows == 0), None)


def precision() -> str:
    """Return how exact products on the tensor cores are, as torch has been told.

    In three parts ("tf32x3") they are nearly as exact as single precision.
    """
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


@cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _offset(bundle: Bundle, name: str) -> int:
    return int(bundle[name].storage_offset())
