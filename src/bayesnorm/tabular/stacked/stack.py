"""Store E networks of one shape together, all weights of a layer in one tensor, and the rows that each network uses."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import torch
from torch import Tensor, nn

from .architecture import Dense, Drop, Layer, Norm, architecture, leaves

Key = TypeVar("Key")


@dataclass(frozen=True, eq=False)
class Scales:
    """Means and standard deviations that each of E networks standardises with.

    Args:
        x_mean, x_std: (E, inputs).
        y_mean, y_std: (E, targets).
    """

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor

    def take(self, members: Tensor) -> Scales:
        """Return the scales of some of the networks, by their indices."""
        return Scales(*(value[members.to(value.device)] for value in vars(self).values()))

    def to(self, device: torch.device, dtype: torch.dtype) -> Scales:
        """Return the scales on a device and in a dtype."""
        return Scales(*(value.to(device, dtype) for value in vars(self).values()))


@dataclass(frozen=True, eq=False)
class StackedRows:
    """Rows of E networks, which may have different ones, and different numbers of them; made by `from_lists`.

    Args:
        x: All rows, (N, inputs).
        y: Targets, (N, targets).
        table: Row numbers, (E, n) with the longest n; shorter lists are padded with their first entry.
        lengths: Number of rows of each network, (E,).
        scales: What networks standardise with.
    """

    x: Tensor
    y: Tensor
    table: Tensor
    lengths: Tensor
    scales: Scales

    @classmethod
    def from_lists(cls, x: Tensor, y: Tensor, lists: Sequence[Tensor], scales: Scales) -> Self:
        """Return the rows of one network for each list of row numbers, standardised by its scales."""
        lengths = torch.tensor([len(numbers) for numbers in lists])
        longest = int(lengths.max())
        table = torch.stack([torch.cat([r, r[:1].expand(longest - len(r))]) for r in lists])
        return cls(x.contiguous(), y.to(x).contiguous(), table.to(x.device), lengths, scales.to(x.device, x.dtype))

    @property
    def mask(self) -> Tensor:
        """Return True where the padded tables hold a row, (E, n)."""
        return torch.arange(self.table.shape[1])[None].lt(self.lengths[:, None]).to(self.x.device)

    def take(self, members: Tensor) -> Self:
        """Return the rows of some of the networks, by their indices."""
        members = members.cpu()
        lengths = self.lengths[members]
        table = self.table[members.to(self.table.device), : int(lengths.max())]
        return replace(self, table=table, lengths=lengths, scales=self.scales.take(members))

    def to(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Return the rows on a device and in a dtype; the same object if nothing changes."""
        if (self.x.device, self.x.dtype) == (device, dtype):
            return self
        x, y = self.x.to(device, dtype), self.y.to(device, dtype)
        return replace(self, x=x, y=y, table=self.table.to(device), scales=self.scales.to(device, dtype))

    def inputs(self, rows: Tensor | None = None) -> Tensor:
        """Return x in the networks' units, (E, n, inputs) padded to the longest, or for row numbers (..., E, n)."""
        rows = self.table if rows is None else rows
        x = self.x.index_select(0, rows.reshape(-1)).view(*rows.shape, self.x.shape[1])
        return x.sub_(self.scales.x_mean[:, None]).div_(self.scales.x_std[:, None])

    def targets(self, rows: Tensor | None = None) -> Tensor:
        """Return y in the networks' units, as `inputs` does."""
        rows = self.table if rows is None else rows
        y = self.y.index_select(0, rows.reshape(-1)).view(*rows.shape, self.y.shape[1])
        return y.sub_(self.scales.y_mean[:, None]).div_(self.scales.y_std[:, None])

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean of values (E, n) over each network's own rows, in double precision: (E,)."""
        values = values.double()
        return torch.where(self.mask, values, 0).sum(1) / self.lengths.to(values.device)

    def unpadded(self, f: Tensor) -> Tensor:
        """Return outputs (samples, E, padded rows, outputs) of every network's own rows, one after the other."""
        return f.flatten(1, 2)[:, self.mask.flatten().to(f.device)]


class Bundle:
    """Tensors (networks, *shapes[name]) that are contiguous parts of `flat`, so that one operation can process all.

    Args:
        shapes: The shapes of one network's tensors, by name.
        networks: Number of networks.
        like: A tensor with the desired device and dtype.
    """

    @torch.inference_mode(False)
    def __init__(self, shapes: Mapping[str, tuple[int, ...]], networks: int, like: Tensor) -> None:
        self.shapes, self.networks = dict(shapes), networks
        sizes = [networks * math.prod(shape) for shape in shapes.values()]
        self.flat = torch.zeros(sum(sizes), device=like.device, dtype=like.dtype)
        parts = self.flat.split(sizes)
        self.tensors = {
            name: part.view(networks, *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def take(self, members: Tensor) -> Bundle:
        """Return a copy of the part of some networks, by their indices."""
        part = Bundle(self.shapes, len(members), self.flat)
        at = members.to(self.flat.device)
        for name, tensor in self.tensors.items():
            torch.index_select(tensor, 0, at, out=part[name])
        return part

    def put(self, members: Tensor, values: Bundle) -> None:
        """Overwrite the part of some networks, by their indices."""
        at = members.to(self.flat.device)
        for name, tensor in self.tensors.items():
            tensor.index_copy_(0, at, values[name])

    def to(self, device: torch.device) -> Bundle:
        """Return a copy on another device."""
        moved = Bundle(self.shapes, self.networks, self.flat.new_empty(0, device=device))
        moved.flat.copy_(self.flat)
        return moved


class Stack:
    """Networks made of `nn.Linear`, `nn.BatchNorm1d`, `nn.Dropout`, `nn.ReLU` and `Skip`; made by `from_networks`.

    Args:
        layers: The layers of each network.
        weights: The trained tensors, by name in a network's state, each (E, ...).
        buffers: Running statistics of batch norm.
        rates: The rates of dropout layers by name, each (E,), on the CPU.
        tracked: Number of steps that batch norm has tracked, (E,), on the CPU.
        prototype: The module that `network` returns copies of.
    """

    @torch.inference_mode(False)  # a stack can be trained even if it was made in inference mode
    def __init__(
        self,
        layers: tuple[Layer, ...],
        weights: Bundle,
        buffers: Bundle,
        rates: dict[str, Tensor],
        tracked: Tensor,
        prototype: nn.Sequential,
    ) -> None:
        self.layers, self.weights, self.buffers = layers, weights, buffers
        self.rates, self.tracked, self.prototype = rates, tracked.clone(), prototype

    @classmethod
    def from_networks(cls, networks: Sequence[nn.Sequential]) -> Stack:
        """Return a stack with copies of the weights of `networks`, on their device and in their dtype.

        The rates of dropout layers may differ between networks.
        """
        layers = architecture(networks)
        like = next(networks[0].parameters()).detach()
        weights = Bundle({k: v for layer in layers for k, v in layer.shapes.items()}, len(networks), like)
        norms = [layer for layer in layers if isinstance(layer, Norm)]
        shapes = {f"{n.name}.{part}": (n.channels,) for n in norms for part in ("running_mean", "running_var")}
        buffers = Bundle(shapes, len(networks), like)
        states = [network.state_dict() for network in networks]
        for bundle in (weights, buffers):
            for name, tensor in bundle.tensors.items():
                tensor.copy_(torch.stack([state[name] for state in states]))
        modules = [dict(leaves(network)) for network in networks]
        rates = {
            layer.name: torch.tensor([named[layer.name].p for named in modules], dtype=torch.float64)
            for layer in layers
            if isinstance(layer, Drop)
        }
        tracked = [int(s[f"{norms[0].name}.num_batches_tracked"]) if norms else 0 for s in states]
        return cls(layers, weights, buffers, rates, torch.tensor(tracked), copy.deepcopy(networks[0]))

    def __len__(self) -> int:
        return self.weights.networks

    @property
    def device(self) -> torch.device:
        return self.weights.flat.device

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.flat.dtype

    @property
    def norms(self) -> tuple[Norm, ...]:
        """Return the batch-norm layers, in running order."""
        return tuple(layer for layer in self.layers if isinstance(layer, Norm))

    @property
    def drops(self) -> tuple[Drop, ...]:
        """Return the dropout layers, in running order."""
        return tuple(layer for layer in self.layers if isinstance(layer, Drop))

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the numbers per row after each layer, starting with the inputs."""
        widths = [next(layer for layer in self.layers if isinstance(layer, Dense)).inputs]
        for layer in self.layers:
            widths.append(layer.outputs if isinstance(layer, Dense) else widths[-1])
        return tuple(widths)

    def to(self, device: torch.device | str) -> Stack:
        """Return a copy on another device."""
        place = torch.device(device)
        rates = {name: rate.clone() for name, rate in self.rates.items()}
        prototype = copy.deepcopy(self.prototype).to(place)
        return Stack(self.layers, self.weights.to(place), self.buffers.to(place), rates, self.tracked, prototype)

    def take(self, members: Tensor) -> Stack:
        """Return a stack with copies of some of the networks, by their indices."""
        members = members.cpu()
        rates = {name: rate[members] for name, rate in self.rates.items()}
        weights, buffers = self.weights.take(members), self.buffers.take(members)
        return Stack(self.layers, weights, buffers, rates, self.tracked[members], self.prototype)

    def put(self, members: Tensor, other: Stack) -> None:
        """Overwrite some of the networks by those of another stack of the same shape."""
        self.weights.put(members, other.weights)
        self.buffers.put(members, other.buffers)
        self.tracked[members.cpu()] = other.tracked

    @torch.no_grad()
    def network(self, index: int) -> nn.Sequential:
        """Return one of the networks as a module, in evaluation mode."""
        network = copy.deepcopy(self.prototype).eval()
        state = network.state_dict(keep_vars=True)
        for bundle in (self.weights, self.buffers):
            for name, tensor in bundle.tensors.items():
                state[name].copy_(tensor[index])
        for norm in self.norms:
            state[f"{norm.name}.num_batches_tracked"].fill_(int(self.tracked[index]))
        for name, module in leaves(network):
            if isinstance(module, nn.Dropout):
                module.p = float(self.rates[name][index])
        return network

    def inputs(self, rows: StackedRows) -> Tensor:
        """Return the rows' inputs in the networks' units and on their device, (E, n, inputs)."""
        return rows.to(self.device, self.dtype).inputs()


def different(keys: Sequence[Key]) -> tuple[list[Key], Tensor]:
    """Return the keys without repetition, and the place of every key among them."""
    unique = list(dict.fromkeys(keys))
    place = {key: i for i, key in enumerate(unique)}
    return unique, torch.tensor([place[key] for key in keys], dtype=torch.long)
