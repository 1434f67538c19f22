"""Remove units from a copy of a network, which gives a smaller, plain network.

There are two kinds of evidence. An output channel of a layer is *silent* if it carries only noise. A layer is *deaf* to
input columns that it does not need. `masked` sets both to zero in a network of the old size. `removed` cuts out what
then has no effect, and its outputs equal those of the masked network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from ..calling import call_network
from ..copying import own_copy
from ..layers import find_batchnorm
from .units import Units, cut_carrier, set_sizes, silence


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
