"""Count the multiply-adds of a pass."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from .copying import private_copy
from .inputs import call_network


def multiply_adds(network: nn.Module, x: Tensor) -> int:
    """Return how many multiply-adds linear and convolutional layers take for one row of `x`."""
    return multiply_adds_by_layer(network, x).total()


@torch.no_grad()
def multiply_adds_by_layer(network: nn.Module, x: Tensor) -> Counter[str]:
    """Return how many multiply-adds each linear and convolutional layer takes for one row of `x`."""
    watched, found = private_copy(network), Counter[str]()

    def count(name: str, module: Any, _: Any, output: Tensor) -> None:
        found[name] += output[0].numel() * module.weight[0].numel()

    for name, module in watched.named_modules():
        if isinstance(module, nn.Linear | _ConvNd):
            module.register_forward_hook(partial(count, name))
    call_network(watched, x[:1].clone(), "x")
    return found
