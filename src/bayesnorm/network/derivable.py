"""Whether a network's outputs have derivatives by batch-norm statistics, with statistics of its own for every row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ..errors import NetworkError
from .affine import AffineBatchNorm, State
from .inputs import call

Outputs = Callable[[State, Tensor], Tensor]
"""Outputs under one state."""


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Tell a failure of a pass with derivatives as what it means: without them the network runs."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:
        raise NetworkError(
            "model: cannot be run with derivatives by batch statistics, others in every row (does what comes into a "
            f"batch-norm layer hold one entry per row? {(str(error) or repr(error)).splitlines()[0]}); "
            "engine=MonteCarlo() would work."
        ) from error


@torch.no_grad()
def require_derivable(affine: AffineBatchNorm, reference: Outputs, mapped: Outputs, state: State, x: Tensor) -> None:
    """An error where batch norm as an affine map does not do on two rows of `x` what the network does.

    Special layers are looked at away from their own statistics, where the map says nothing.

    Args:
        affine: The network's batch-norm layers.
        reference: The network under a state, by plain overrides.
        mapped: The same by affine maps.
        state: Statistics (channels,), or (batch, channels) for others in every row.
        x: Inputs on the network's device.
    """
    moved = {name: value[0] if value.dim() > 1 else value for name, value in state.items()}
    for name, layer in affine.special.items():
        mean, var = f"{name}.running_mean", f"{name}.running_var"
        if mean in moved and layer.running_var is not None:
            moved[mean] = moved[mean] + 0.5 * (layer.running_var + layer.eps).sqrt()
        if var in moved:
            moved[var] = 1.5 * moved[var]
    two = x[[0, -1]]
    expected = call(partial(reference, moved), two, "x", tuple(x.shape))
    with told():
        found = mapped({name: value.expand(2, -1) for name, value in moved.items()}, two)
    rounding = max(1e-3, 8 * torch.finfo(expected.dtype).eps)
    within = rounding * float(expected.abs().max())
    if not torch.allclose(expected, found, rtol=rounding, atol=within, equal_nan=True):
        raise NetworkError(
            f"model: {', '.join(affine.special) or 'its batch-norm layers'} use their input for more than "
            "normalisation, so the outputs have no derivatives by the statistics; engine=MonteCarlo() would work."
        )
