"""Estimate a network's running statistics again, for example after pruning."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..copying import own_copy
from ..inputs import call_network
from ..layers import find_batchnorm


@torch.no_grad()
def renewed_statistics(network: nn.Module, x: Tensor, batch_size: int = 256) -> nn.Module:
    """Return a copy of a network whose running statistics are the mean over batches of `x`.

    Dropout and all other layers stay in evaluation mode. A network without batch norm is only copied.

    Args:
        network: The network; never modified.
        x: Examples from the training distribution, on the network's device.
        batch_size: Examples per batch.
    """
    made = own_copy(network)
    layers = [layer for layer in find_batchnorm(made).values() if layer.track_running_stats]
    if not layers:
        return made
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a cumulative mean
        layer.train()
    for start in range(0, max(1, len(x) - len(x) % batch_size), batch_size):
        call_network(made, x[start : start + batch_size], "x")
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum
    made.eval()
    return made
