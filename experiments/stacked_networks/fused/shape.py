"""Describe which stacks the kernels support, and where the tensors of a stack are in memory."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import torch

from bayesnorm.tabular.stacked import Bundle, Dense, Drop, Layer, Norm, ReLU, Stack

NORMALISED = (Dense, Norm, ReLU, Dense, Norm, ReLU, Dense)
DROPPED = (Drop, Dense, ReLU, Drop, Dense, ReLU, Drop, Dense)

# Largest number of hidden units, and of inputs, that fit on a multiprocessor.
WIDEST = 128


@dataclass(frozen=True)
class Shape:
    """Two hidden layers of one width with ReLU, one output.

    Args:
        inputs, width: Number of inputs, and units of each hidden layer.
        dense: Names of the three linear layers.
        norms: Names of the two batch-norm layers; empty with dropout.
        drops: Names of the three dropout layers; empty with batch norm.
        eps, momentum: Constants of batch norm.
    """

    inputs: int
    width: int
    dense: tuple[str, ...]
    norms: tuple[str, ...]
    drops: tuple[str, ...]
    eps: float = 0.0
    momentum: float = 0.0

    warps: ClassVar[int] = 8
    """Groups of 32 threads per program."""

    @property
    def D(self) -> int:
        """Return the number of inputs, padded."""
        return max(16, _power_of_two(self.inputs))

    @property
    def H(self) -> int:
        """Return the width, padded."""
        return max(16, _power_of_two(self.width))

    def places(self, weights: Bundle) -> dict[str, int]:
        """Return the offsets of the kernels' weights in a bundle's buffer."""
        first, second, last = self.dense
        named = {"w1": f"{first}.weight", "w2": f"{second}.weight", "w3": f"{last}.weight", "b3": f"{last}.bias"}
        if self.norms:
            for i, norm in enumerate(self.norms, 1):
                named |= {f"g{i}": f"{norm}.weight", f"b{i}": f"{norm}.bias"}
        else:
            named |= {"b1": f"{first}.bias", "b2": f"{second}.bias"}
        return {f"at_{short}": _offset(weights, name) for short, name in named.items()}

    def running_places(self, buffers: Bundle) -> dict[str, int]:
        """Return the offsets of running statistics in their buffer."""
        return {
            f"at_{part}{i}": _offset(buffers, f"{norm}.running_{part}")
            for i, norm in enumerate(self.norms, 1)
            for part in ("mean", "var")
        }


def shape_of(stack: Stack) -> Shape | None:
    """Return the shape of a stack on a GPU that the kernels support, or None."""
    if stack.device.type != "cuda" or stack.dtype != torch.float32 or not _has_triton():
        return None
    shape = fitting(stack.layers)
    # Split into three parts, products of wider layers need more memory than a multiprocessor has.
    return shape if shape is None or shape.H <= 64 or precision() == "tf32" else None


def fitting(layers: tuple[Layer, ...]) -> Shape | None:
    """Return the shape of networks with these layers, or None if the kernels do not support it."""
    kinds = tuple(type(layer) for layer in layers)
    dense = [layer for layer in layers if isinstance(layer, Dense)]
    norms = [layer for layer in layers if isinstance(layer, Norm)]
    if kinds not in (NORMALISED, DROPPED):
        return None
    first, second, last = dense
    biased = (False, False, True) if norms else (True, True, True)
    square = first.outputs == second.inputs == second.outputs == last.inputs and last.outputs == 1
    if not square or tuple(layer.bias for layer in dense) != biased:
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
    """Return how many rows a program holds at once: 32 or 16, a divisor of the batch size, or None."""
    return next((rows for rows in (32, 16) if batch_size % rows == 0), None)


def precision() -> str:
    """Return the precision of products on the tensor cores, as set in torch.

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
