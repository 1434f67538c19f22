"""Refuse networks whose outputs have no derivatives by batch-norm statistics, others in every row."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ...errors import NetworkError
from ..inputs import call_network
from .affine import AffineBatchNorm, State

Outputs = Callable[[Tensor, State], Tensor]
"""Gives a network's outputs for inputs under one state."""

# On how many rows, and how far in standard deviations, statistics are moved to see whether outputs depend on them.
ROWS, SHIFT = 8, 1e-2


@contextlib.contextmanager
def derivative_errors_explained() -> Iterator[None]:
    """Let errors of a pass with derivatives say what they mean: without derivatives the network runs."""
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
    """Refuse a network that does not do with batch norm as an affine map, on some rows of `x`, what it does itself.

    Layers are looked at away from their own statistics, where a special layer's map says nothing, and where it shows
    whether a forward uses statistics outside of their layer. Nor may it cut off derivatives, by `torch.no_grad` or
    `detach`: the variance of what comes before would silently be missing.

    Args:
        affine: The network's batch-norm layers.
        reference: Gives outputs under a state, by plain overrides.
        mapped: Gives the same by affine maps.
        state: Means and variances of layers, (channels,), or (batch, channels) for others in every row.
        x: Inputs on the network's device.
    """
    state = _moved(affine, {name: (value[0] if value.dim() > 1 else value).detach() for name, value in state.items()})
    some = x[:ROWS]
    expected = call_network(lambda rows: reference(rows, state), some, "x", tuple(x.shape))
    found, cut_off = _outputs_and_layers_cut_off(mapped, state, some)
    rounding = max(1e-3, 8 * torch.finfo(expected.dtype).eps)
    within = rounding * float(expected.abs().max())
    if not torch.allclose(expected, found, rtol=rounding, atol=within, equal_nan=True):
        what = f"{', '.join(affine.special)} use their input for more than normalisation"
        if not affine.special:
            what = "its forward uses batch-norm statistics outside of their layers, or normalises by the batch"
        raise NetworkError(
            f"model: {what}, so the outputs have no derivatives by the statistics; engine=MonteCarlo() would work."
        )
    for layer in cut_off:
        mean, var = f"{layer}.running_mean", f"{layer}.running_var"
        spread = state[var].clamp_min(0).sqrt()
        shifted = state | {mean: state[mean] + SHIFT * spread, var: (1 + SHIFT) * state[var]}
        change = (reference(some, shifted) - expected).abs().max()
        if float(change) > 1e-6 * float(expected.abs().max()):  # else its units are dead on these rows
            raise NetworkError(
                f"model: its outputs depend on the statistics of {layer!r}, but its forward cuts off derivatives by "
                "them (torch.no_grad, detach?); engine=MonteCarlo() would work."
            )


def _moved(affine: AffineBatchNorm, state: State) -> State:
    """Return a state with other statistics of all batch-norm layers, half a standard deviation away."""
    moved = dict(state)
    for name, module in (affine.plain | affine.special).items():
        mean, var = f"{name}.running_mean", f"{name}.running_var"
        if mean in moved and module.running_var is not None:
            # Both ways in turn, so that a ReLU lets some units through.
            sign = 1 - 2 * (torch.arange(module.num_features, device=moved[mean].device) % 2)
            moved[mean] = moved[mean] + 0.5 * sign * (module.running_var + module.eps).sqrt()
        if var in moved:
            moved[var] = 1.5 * moved[var]
    return moved


def _outputs_and_layers_cut_off(mapped: Outputs, state: State, x: Tensor) -> tuple[Tensor, list[str]]:
    """Return outputs, with statistics of its own for every row, and layers that no derivative of them comes back to."""
    with torch.enable_grad(), derivative_errors_explained():
        own = {name: value.expand(len(x), -1).clone().requires_grad_() for name, value in state.items()}
        outputs = mapped(x, own)
        weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs)
        mixed = (outputs * weights).sum()
        graph = mixed.requires_grad
        found = torch.autograd.grad(mixed, list(own.values()), allow_unused=True) if graph else [None] * len(own)
    layers = [name.rpartition(".")[0] for name in own]
    reached = {layer for layer, g in zip(layers, found, strict=True) if g is not None and bool(g.any())}
    return outputs.detach(), [layer for layer in dict.fromkeys(layers) if layer not in reached]
