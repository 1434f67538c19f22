"""The statistics of single inputs at batch-norm layers, in evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..calling import call_network
from ..copying import own_copy
from ..layers import find_batchnorm

# Numbers of inputs per forward pass.
AT_ONCE = 2**18


def single_input_statistics(
    model: nn.Module, x: Tensor, forward_kwargs: Mapping[str, Any] | None = None
) -> list[Tensor]:
    """Return the statistics of every input alone at each layer that runs once, (inputs, channels) each.

    For each layer these are the means over positions and, if there is more than one position, the logarithms of the
    variances over positions. The network runs in evaluation mode, so inputs do not influence each other.

    Args:
        model: The network; never modified.
        x: Inputs on its device.
        forward_kwargs: Further arguments of every forward pass.
    """
    network = own_copy(model, forward_kwargs)
    seen: dict[str, list[Tensor]] = {}

    def hook(name: str) -> Callable[[nn.Module, Any], None]:
        def record(layer: nn.Module, inputs: Any) -> None:
            positions = (
                inputs[0].detach().double().flatten(2) if inputs[0].dim() > 2 else inputs[0].double()[:, :, None]
            )
            seen.setdefault(name, []).append(positions.mean(2))
            if positions.shape[2] > 1:
                seen.setdefault(f"{name}.var", []).append((positions.var(2, correction=0) + 1e-8).log())

        return record

    for name, layer in find_batchnorm(network).items():
        layer.register_forward_pre_hook(hook(name))
    blocks = x.split(max(1, AT_ONCE // max(1, x[0].numel())))
    for block in blocks:
        call_network(network, block.clone(), "x")
    parts = [torch.cat(values) for values in seen.values() if len(values) == len(blocks)]
    return [part for part in parts if len(part) == len(x)]
