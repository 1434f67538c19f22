"""Count the multiply-adds of a forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from .copying import private_copy
from .inputs import call_network


@torch.no_grad()
def multiply_adds(network: nn.Module, x: Tensor) -> int:
    """Return the number of multiply-adds of linear and convolutional layers for one example of `x`."""
    watched, total = private_copy(network), 0

    def count(module: Any, _: Any, output: Tensor) -> None:
        nonlocal total
        total += output[0].numel() * module.weight[0].numel()

    for _, module in watched.named_modules():
        if isinstance(module, nn.Linear | _ConvNd):
            module.register_forward_hook(count)
    call_network(watched, x[:1].clone(), "x")
    return total
