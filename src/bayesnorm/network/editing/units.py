"""Describe which layers of a network write, carry and read the same units, and cut layers down to some of them.

A *unit* is a channel of a signal between layers: a filter of a convolution or an output of a linear layer.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

# Forwards that only map their input, unlike those of transposed convolutions.
PLAIN_FORWARDS = (nn.Linear.forward, nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)

OUTPUTS = "they are the network's outputs"
"""Why a network's outputs cannot be removed."""


@dataclass
class Units:
    """Units of a network by layer; lists have the number of a unit for every channel.

    Args:
        written: Layers and the units of their outputs.
        read: Layers and the units of their inputs; None for the network's inputs and unknown ones.
        carried: Batch norm and grouped convolutions, and the units of their outputs.
        required: Units that cannot be removed, and why.
        normalised: Layers and the batch norm that directly follows them.
        nonzero_at_zero: Units that pass an activation which maps zero to another value.
        gates: Layers whose outputs only multiply units; a removed unit needs no removed gate.
    """

    written: dict[str, list[int]] = field(default_factory=dict)
    read: dict[str, list[int | None]] = field(default_factory=dict)
    carried: dict[str, list[int]] = field(default_factory=dict)
    required: dict[int, str] = field(default_factory=dict)
    normalised: dict[str, str] = field(default_factory=dict)
    nonzero_at_zero: set[int] = field(default_factory=set)
    gates: set[str] = field(default_factory=set)


@torch.no_grad()
def silence(module: nn.Module, flags: Tensor) -> None:
    """Set some output channels of a layer to zero, including its bias and its batch-norm shift."""
    for key in ("weight", "bias"):
        parameter = module._parameters.get(key)
        if parameter is not None:
            parameter[flags.to(parameter.device)] = 0
    if isinstance(module, _BatchNorm) and module.weight is None and module.running_mean is not None:
        module.running_mean[flags.to(module.running_mean.device)] = 0


@torch.no_grad()
def cut_carrier(module: nn.Module, channels: Tensor) -> None:
    """Cut batch norm or a grouped convolution down to some channels."""
    for tensors in (module._parameters, module._buffers):
        for key, value in tensors.items():
            if value is not None and value.dim():
                part = value[channels.to(value.device)].clone()
                tensors[key] = nn.Parameter(part, value.requires_grad) if isinstance(value, nn.Parameter) else part  # type: ignore[assignment]
    set_sizes(module)


def set_sizes(module: nn.Module) -> None:
    """Set the size attributes of a layer to the sizes of its tensors."""
    if isinstance(module, _BatchNorm):
        held = module.weight if module.weight is not None else module.running_mean
        module.num_features = module.num_features if held is None else len(held)
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, _ConvNd):
        outputs, inputs = module.weight.shape[:2]
        if module.groups > 1:  # whole groups were removed
            groups = outputs * module.groups // module.out_channels
            module.groups, inputs = groups, groups * inputs
        module.out_channels, module.in_channels = outputs, inputs


@torch.no_grad()
def channels_apart(module: _BatchNorm, dims: int) -> tuple[bool, bool]:
    """Return whether a batch-norm layer with a custom forward keeps channels separate and maps silenced channels to
    zero.

    A copy that is cut down to every other channel must give the same outputs for them as the whole layer.

    Args:
        module: The layer; never modified.
        dims: Number of dimensions of its inputs.
    """
    channels = module.num_features
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, channels, *[3] * (dims - 2), generator=generator, dtype=torch.float64)
    some = torch.arange(channels) % 2 == 0
    try:
        whole, part, silent = (copy.deepcopy(module).to("cpu", torch.float64).eval() for _ in range(3))
        cut_carrier(part, some)
        silence(silent, torch.ones(channels, dtype=torch.bool))
        expected, outputs, zero = whole(x.clone())[:, some], part(x[:, some].clone()), silent(torch.zeros_like(x))
    except Exception:  # a custom layer may raise anything
        return False, False
    same = outputs.shape == expected.shape and torch.allclose(outputs, expected, rtol=1e-9, atol=1e-12)
    return same, not zero.any()
