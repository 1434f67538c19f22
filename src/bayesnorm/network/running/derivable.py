"""Whether a network's outputs have derivatives by batch-norm statistics, with statistics of its own for every row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ...errors import NetworkError
from ..inputs import call_network
from .affine import AffineBatchNorm, State

Outputs = Callable[[State, Tensor], Tensor]
"""Outputs under one state."""

ROWS, SHIFT = 16, 1e-2
"""On how many rows, and how far in standard deviations, statistics are moved to see whether outputs depend on them."""


@contextlib.contextmanager
def derivative_errors_explained() -> Iterator[None]:
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
    """An error where batch norm as an affine map does not do on some rows of `x` what the network does.

    Layers are looked at away from their own statistics, where a special layer's map says nothing, and where it shows
    whether a forward uses statistics outside of their layer. Nor may it cut off derivatives, by `torch.no_grad` or
    `detach`: the variance of what comes before would silently be missing.

    Args:
        affine: The network's batch-norm layers.
        reference: The network under a state, by plain overrides.
        mapped: The same by affine maps.
        state: Means and variances of layers, (channels,), or (batch, channels) for others in every row.
        x: Inputs on the network's device.
    """
    state = {name: (value[0] if value.dim() > 1 else value).detach() for name, value in state.items()}
    moved = dict(state)
    for name, module in (affine.plain | affine.special).items():
        mean, var = f"{name}.running_mean", f"{name}.running_var"
        if mean in moved and module.running_var is not None:
            moved[mean] = moved[mean] + 0.5 * (module.running_var + module.eps).sqrt()
        if var in moved:
            moved[var] = 1.5 * moved[var]
    two = x[[0, -1]]
    expected = call_network(partial(reference, moved), two, "x", tuple(x.shape))
    with derivative_errors_explained():
        found = mapped({name: value.expand(2, -1) for name, value in moved.items()}, two)
    rounding = max(1e-3, 8 * torch.finfo(expected.dtype).eps)
    within = rounding * float(expected.abs().max())
    if not torch.allclose(expected, found, rtol=rounding, atol=within, equal_nan=True):
        what = f"{', '.join(affine.special)} use their input for more than normalisation"
        if not affine.special:
            what = "its forward uses batch-norm statistics outside of their layers, or normalises by the batch"
        raise NetworkError(
            f"model: {what}, so the outputs have no derivatives by the statistics; engine=MonteCarlo() would work."
        )
    some = x[:ROWS]
    for layer in _cut_off(mapped, state, some):
        mean, var = f"{layer}.running_mean", f"{layer}.running_var"
        spread = state[var].clamp_min(0).sqrt()
        shifted = state | {mean: state[mean] + SHIFT * spread, var: (1 + SHIFT) * state[var]}
        here, there = reference(state, some), reference(shifted, some)
        if float((there - here).abs().max()) > 1e-6 * float(here.abs().max()):  # else its units are dead on these rows
            raise NetworkError(
                f"model: its outputs depend on the statistics of {layer!r}, but its forward cuts off derivatives by "
                "them (torch.no_grad, detach?); engine=MonteCarlo() would work."
            )


def _cut_off(mapped: Outputs, state: State, x: Tensor) -> list[str]:
    """Layers that no derivative of any output comes back to."""
    with torch.enable_grad(), derivative_errors_explained():
        own = {name: value.expand(len(x), -1).clone().requires_grad_() for name, value in state.items()}
        outputs = mapped(own, x)
        weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs)
        mixed = (outputs * weights).sum()
        graph = mixed.requires_grad
        found = torch.autograd.grad(mixed, list(own.values()), allow_unused=True) if graph else [None] * len(own)
    layers = [name.rpartition(".")[0] for name in own]
    reached = {layer for layer, g in zip(layers, found, strict=True) if g is not None and bool(g.any())}
    return [layer for layer in dict.fromkeys(layers) if layer not in reached]
