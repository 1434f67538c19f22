"""Describe which layers of a network write, carry and read the same units, and remove units from a copy.

A *unit* is a channel of a signal between layers: a filter of a convolution or an output of a linear layer.

There are two kinds of evidence. An output channel of a layer is *silent* if it carries only noise. A layer is *deaf* to
input columns that it does not need. `masked` sets both to zero in a network of the old size. `removed` cuts out what
then has no effect, and its outputs equal those of the masked network.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ..calling import call_network
from ..copying import own_copy
from ..layers import find_batchnorm

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


class SelectedLinear(nn.Linear):
    """A linear layer that uses only some of its inputs.

    Args:
        columns: Which of the inputs, in the order of the weight's columns.
        out_features: Number of outputs.
        bias: Whether the layer has a bias.
    """

    columns: Tensor

    def __init__(self, columns: Tensor, out_features: int, bias: bool = True) -> None:
        super().__init__(len(columns), out_features, bias, device="meta")
        self.register_buffer("columns", columns)

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input.index_select(-1, self.columns), self.weight, self.bias)


@dataclass(frozen=True)
class Removal:
    """The channels and columns to remove.

    Args:
        silent: Layers and a flag for every output channel, True if it is to be silent.
        deaf: Layers and a flag for every input column, True if the layer is to be deaf to it.
    """

    silent: dict[str, Tensor] = field(default_factory=dict)
    deaf: dict[str, Tensor] = field(default_factory=dict)

    def units(self, units: Units) -> set[int]:
        """Return the units that can be removed: silent in all layers that write them, or unused by all layers that read
        them.

        Every layer keeps at least one unit.
        """
        silent, spoken = _parted(
            {k: layer_units for k, layer_units in units.written.items() if k not in units.gates}, self.silent
        )
        unheard, heard = _parted(units.read, self.deaf)
        gone = (unheard - heard) | (silent - spoken - units.nonzero_at_zero)
        gone -= set(units.required)
        for layer_units in units.written.values():
            if gone.issuperset(layer_units):
                gone.discard(layer_units[0])
        return gone


def _parted(layers: Mapping[str, Sequence[int | None]], flags: dict[str, Tensor]) -> tuple[set[int], set[int]]:
    """Return the units that some layer flags, and those that some layer does not flag."""
    flagged: set[int | None] = set()
    others: set[int | None] = set()
    for layer, layer_units in layers.items():
        if layer in flags:
            for unit, flag in zip(layer_units, flags[layer].tolist(), strict=True):
                (flagged if flag else others).add(unit)
        else:
            others.update(layer_units)
    return {unit for unit in flagged if unit is not None}, {unit for unit in others if unit is not None}


@torch.no_grad()
def masked(network: nn.Module, units: Units, removal: Removal) -> nn.Module:
    """Return a copy of the network, of the same size, with the removed parts set to zero."""
    made, gone = own_copy(network), removal.units(units)
    modules = dict(made.named_modules())
    for layer, flags in removal.deaf.items():
        modules[layer].weight[:, flags] = 0
    for layer, flags in removal.silent.items():
        modules[layer].weight[flags] = 0
    # A silent unit is exactly zero: its bias and its batch-norm shift are set to zero too.
    for layer, flags in removal.silent.items():
        removed_units = torch.tensor([unit in gone for unit in units.written[layer]], device=flags.device)
        silence(modules[layer], removed_units & flags)
    silenced = _parted(units.written, removal.silent)[0] & gone
    for layer, carried in units.carried.items():
        silence(modules[layer], torch.tensor([unit in silenced for unit in carried]))
    return made


def removed(network: nn.Module, units: Units, removal: Removal) -> nn.Module:
    """Return a smaller network whose outputs are those of the masked one."""
    made, gone = masked(network, units, removal), removal.units(units)
    for layer, read in units.read.items():
        deaf = removal.deaf.get(layer)
        heard = [unit not in gone for unit in read]
        wanted = heard if deaf is None else [h and not d for h, d in zip(heard, deaf.tolist(), strict=True)]
        if not any(wanted):  # a layer needs at least one input; its weights are zero
            wanted[heard.index(True)] = True
        written = torch.tensor([unit not in gone for unit in units.written[layer]])
        _cut(made, layer, written, torch.tensor(heard), torch.tensor(wanted))
    for layer, carried in units.carried.items():
        cut_carrier(made.get_submodule(layer), torch.tensor([unit not in gone for unit in carried]))
    return made


@torch.no_grad()
def _cut(network: nn.Module, layer: str, outputs: Tensor, heard: Tensor, wanted: Tensor) -> None:
    """Cut a linear or convolutional layer down.

    Args:
        network: The network, which is changed.
        layer: The layer's name.
        outputs: Which outputs are kept.
        heard: Which inputs arrive.
        wanted: Which of them the layer uses.
    """
    module = network.get_submodule(layer)
    assert isinstance(module, nn.Linear | _ConvNd)
    columns = heard
    if isinstance(module, nn.Linear) and not torch.equal(heard, wanted):
        columns = wanted
        places = (heard.cumsum(0) - 1)[wanted].to(module.weight.device)
        small = SelectedLinear(places, int(outputs.sum()), module.bias is not None)
        small.weight, small.bias = module.weight, module.bias
        network.set_submodule(layer, small.train(module.training))
        module = small
    weight = module.weight
    rows, columns = outputs.to(weight.device), columns.to(weight.device)
    module.weight = nn.Parameter(weight[rows][:, columns].contiguous(), requires_grad=weight.requires_grad)
    if module.bias is not None:
        module.bias = nn.Parameter(module.bias[rows].clone(), requires_grad=module.bias.requires_grad)
    set_sizes(module)


@torch.no_grad()
def resized(network: nn.Module, tensors: dict[str, Tensor]) -> nn.Module:
    """Return a copy of a network, in evaluation mode, with tensors replaced by others of other sizes.

    Args:
        network: The network; never modified.
        tensors: The new tensors by name; `columns` of a linear layer are those of `SelectedLinear`.
    """
    made = own_copy(network)
    for name in tensors:
        layer, _, key = name.rpartition(".")
        old = made.get_submodule(layer)
        if key == "columns" and isinstance(old, nn.Linear):
            small = SelectedLinear(tensors[name], old.out_features, old.bias is not None)
            made.set_submodule(layer, small.eval())
    for name, value in tensors.items():
        layer, _, key = name.rpartition(".")
        module = made.get_submodule(layer)
        if key in module._parameters:
            module._parameters[key] = nn.Parameter(value)
        else:
            module._buffers[key] = value
        set_sizes(module)
    return made


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
