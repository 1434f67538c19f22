"""How a network is to be run on inputs of some shape, from one look at a few rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import NetworkError
from .affine import State


@dataclass(frozen=True)
class Plan:
    """What one look at an input of some shape told about running the network on such inputs."""

    vectorizable: bool
    prefix_last: bool
    """Whether what comes before the first drawn module runs channels-last."""
    tail_last: bool
    """Whether the rest does."""
    bytes_per_row: int
    output_shape: tuple[int, ...]
    output_dtype: torch.dtype


def kind_of(states: State, x: Tensor) -> Any:
    """What a look at a few rows is good for: inputs of this shape, with these tensors drawn, in this precision."""
    kind = x.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return tuple(x.shape[1:]), x.dtype, x.device, frozenset(states), autocast


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def agrees(run: Callable[[], Tensor], expected: Tensor) -> bool:
    """Whether `run` gives `expected` up to rounding, without an error or a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = run()
    except Exception:
        return False
    return bool((found - expected).abs().max() <= 1e-3 * expected.abs().max())


def require_same(found: Tensor, expected: Tensor) -> None:
    """An error where outputs differ by more than rounding, also that of networks which run in half precision inside."""
    within = 0.1 * float(expected.double().nan_to_num(0, 0, 0).abs().max())
    if not torch.allclose(found.double(), expected.double(), rtol=0, atol=within, equal_nan=True):
        raise NetworkError("it gives other numbers so; does it use its batch-norm statistics outside of their layers?")
