"""Numbers of a likelihood: one, or one per entry of the last output axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import BayesNormError, InputError


def positive_numbers(name: str, given: Any) -> float | tuple[float, ...]:
    """One positive number, or several, as plain numbers."""
    several = isinstance(given, Sequence) or (isinstance(given, Tensor) and given.dim() > 0)
    values = tuple(given) if several else (given,)
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise BayesNormError(f"{name}: {given!r} was given; positive numbers would work.") from error
    if not numbers or not all(math.isfinite(value) and value > 0 for value in numbers):
        raise BayesNormError(f"{name}: {given!r} was given; positive, finite numbers would work.")
    return numbers if several else numbers[0]


def as_numbers(noise: Tensor) -> float | tuple[float, ...]:
    """A tensor of no or one axis as plain numbers."""
    numbers = noise.double().tolist()
    return tuple(numbers) if isinstance(numbers, list) else numbers


def on_outputs(name: str, numbers: float | tuple[float, ...], f: Tensor) -> Tensor:
    """Numbers as a tensor that broadcasts over outputs (n, batch, *out)."""
    tensor = torch.as_tensor(numbers, dtype=f.dtype, device=f.device)
    if tensor.dim() and (f.dim() < 3 or f.shape[-1] != len(tensor)):
        raise InputError(
            f"{name}: {len(tensor)} numbers for outputs of shape {tuple(f.shape[1:])}; one number, or one per entry of "
            "the last axis, would work."
        )
    return tensor


def like_outputs(y: Tensor, f: Tensor) -> Tensor:
    """Targets in the shape of the outputs; only an axis of one may be missing."""
    if y.shape == f.shape:
        return y
    if f.numel() != y.numel() or len(f) != len(y):
        raise InputError(f"y: has shape {tuple(y.shape)} for outputs {tuple(f.shape)}; one target per output.")
    return y.reshape(f.shape)


def per_output(error: Tensor) -> Tensor:
    """Mean over the rows, for each output where a row has several, else over everything."""
    several = error.dim() == 2 and error.shape[-1] > 1
    mean = (error.mean(0) if several else error.mean()).double()
    return mean.clamp_min(torch.finfo(error.dtype).tiny ** 0.5)
