"""Refuse networks whose outputs have no derivatives with respect to batch-norm statistics per example."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...errors import NetworkError
from ..calling import forward_errors_explained
from .affine import AffineBatchNorm, State
from .private_network import PrivateNetwork

# The number of examples, and by how many standard deviations statistics are moved to see whether outputs depend on
# them.
ROWS, SHIFT = 8, 1e-2


@contextlib.contextmanager
def derivative_errors_explained() -> Iterator[None]:
    """Explain errors of a forward pass with derivatives, given that the network runs without derivatives."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError) as error:
        raise NetworkError(
            "model: it cannot be run with derivatives with respect to batch statistics that differ between examples "
            f"({(str(error) or repr(error)).splitlines()[0]}). Does the input of every batch-norm layer have one "
            "entry per example? Use engine=MonteCarlo()."
        ) from error


@torch.no_grad()
def require_derivable(network: PrivateNetwork, state: State, x: Tensor) -> None:
    """Refuse a network whose outputs on some examples of `x` change if batch norm runs as an affine map.

    The check uses other statistics than the network's own. This reveals special layers and forwards that use statistics
    outside of their layers. A forward must also not block derivatives with `torch.no_grad` or `detach`: the variance of
    everything before would be missing without an error.

    Args:
        network: The network.
        state: Means and variances of layers, (channels,), or (batch, channels) if they differ between examples.
        x: Inputs on the network's device.
    """
    state = _moved(
        network.batchnorm, {name: (value[0] if value.dim() > 1 else value).detach() for name, value in state.items()}
    )
    some = x[:ROWS]
    with forward_errors_explained(some, "x", tuple(x.shape)):
        expected = network.reference(some, state)
    outputs, cut_off = _outputs_and_layers_cut_off(network, state, some)
    rounding = max(1e-3, 8 * torch.finfo(expected.dtype).eps)
    within = rounding * float(expected.abs().max())
    if not torch.allclose(expected, outputs, rtol=rounding, atol=within, equal_nan=True):
        what = f"the layers {', '.join(network.batchnorm.special)} use their input for more than normalisation"
        if not network.batchnorm.special:
            what = "its forward uses batch-norm statistics outside of their layers, or normalises by the batch"
        raise NetworkError(
            f"model: {what}, so its outputs have no derivatives with respect to the statistics. Use "
            "engine=MonteCarlo()."
        )
    for layer in cut_off:
        mean, var = f"{layer}.running_mean", f"{layer}.running_var"
        spread = state[var].clamp_min(0).sqrt()
        shifted = state | {mean: state[mean] + SHIFT * spread, var: (1 + SHIFT) * state[var]}
        change = (network.reference(some, shifted) - expected).abs().max()
        if float(change) > 1e-6 * float(expected.abs().max()):  # otherwise its units are zero for these examples
            raise NetworkError(
                f"model: its outputs depend on the statistics of {layer!r}, but its forward blocks their derivatives, "
                "for example with torch.no_grad or detach. Use engine=MonteCarlo()."
            )


def _moved(affine: AffineBatchNorm, state: State) -> State:
    """Return a state in which the statistics of all batch-norm layers are moved by half a standard deviation."""
    moved = dict(state)
    for name, module in (affine.plain | affine.special).items():
        mean, var = f"{name}.running_mean", f"{name}.running_var"
        if mean in moved and module.running_var is not None:
            # In alternating directions, so that some units pass a ReLU.
            sign = 1 - 2 * (torch.arange(module.num_features, device=moved[mean].device) % 2)
            moved[mean] = moved[mean] + 0.5 * sign * (module.running_var + module.eps).sqrt()
        if var in moved:
            moved[var] = 1.5 * moved[var]
    return moved


def _outputs_and_layers_cut_off(network: PrivateNetwork, state: State, x: Tensor) -> tuple[Tensor, list[str]]:
    """Return outputs, with separate statistics for every example, and the layers that get no derivative from them."""
    with torch.enable_grad(), derivative_errors_explained():
        statistics = {name: value.expand(len(x), -1).clone().requires_grad_() for name, value in state.items()}
        outputs = network.mapped(x, statistics)
        weights = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs)
        mixed = (outputs * weights).sum()
        gradients: Sequence[Tensor | None] = [None] * len(statistics)
        if mixed.requires_grad:
            gradients = torch.autograd.grad(mixed, list(statistics.values()), allow_unused=True)
    layers = [name.rpartition(".")[0] for name in statistics]
    reached = {layer for layer, g in zip(layers, gradients, strict=True) if g is not None and bool(g.any())}
    return outputs.detach(), [layer for layer in dict.fromkeys(layers) if layer not in reached]
