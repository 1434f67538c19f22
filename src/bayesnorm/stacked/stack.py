"""Store E networks of one shape together: all weights of a layer in one tensor."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, NetworkError
from ..network import as_input
from .architecture import Dense, Drop, Layer, Norm, architecture, leaves
from .bundle import Bundle
from .rows import StackedRows


class Stack:
    """Networks made of `nn.Linear`, `nn.BatchNorm1d`, `nn.Dropout` and activations; made by `Stack.of`.

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
    def of(cls, networks: Sequence[nn.Sequential]) -> Stack:
        """Return a stack with copies of the weights of `networks`, on their device and in their dtype.

        The rates of dropout layers may differ between networks.
        """
        networks = list(networks)
        if not networks:
            raise NetworkError("networks is empty. Pass at least one network.")
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
        modules = [dict(leaves(i, network)) for i, network in enumerate(networks)]
        rates = {
            layer.name: torch.tensor([_rate(each[layer.name]) for each in modules], dtype=torch.float64)
            for layer in layers
            if isinstance(layer, Drop)
        }
        tracked = [int(s[f"{norms[0].name}.num_batches_tracked"]) if norms else 0 for s in states]
        return cls(layers, weights, buffers, rates, torch.tensor(tracked), copy.deepcopy(networks[0]))

    def __len__(self) -> int:
        return self.weights.networks

    def __repr__(self) -> str:
        return f"Stack({len(self)} networks of {self.prototype})"

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
        dense = [layer for layer in self.layers if isinstance(layer, Dense)]
        found = [dense[0].inputs]
        for layer in self.layers:
            found.append(layer.outputs if isinstance(layer, Dense) else found[-1])
        return tuple(found)

    def to(self, device: torch.device | str) -> Stack:
        """Return a copy on another device."""
        place = torch.device(device)
        rates = {name: rate.clone() for name, rate in self.rates.items()}
        own = copy.deepcopy(self.prototype).to(place)
        return Stack(self.layers, self.weights.to(place), self.buffers.to(place), rates, self.tracked, own)

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

    def network(self, index: int) -> nn.Sequential:
        """Return one of the networks as a module, in evaluation mode."""
        found = copy.deepcopy(self.prototype).eval()
        self._load(index, found)
        for name, module in leaves(0, found):
            if isinstance(module, nn.Dropout):
                module.p = float(self.rates[name][index])
        return found

    @torch.no_grad()
    def _load(self, index: int, network: nn.Sequential) -> None:
        state = network.state_dict(keep_vars=True)
        for bundle in (self.weights, self.buffers):
            for name, tensor in bundle.tensors.items():
                state[name].copy_(tensor[index])
        for norm in self.norms:
            state[f"{norm.name}.num_batches_tracked"].fill_(int(self.tracked[index]))

    def placed(self, rows: StackedRows, name: str) -> StackedRows:
        """Return rows on the stack's device; refuse rows for other networks; `name` is their name in messages."""
        self.require_rows(rows, name)
        return rows.to(self.device, self.dtype)

    def require_rows(self, rows: StackedRows, name: str) -> None:
        """Refuse rows for other networks; `name` is their name in messages."""
        if not isinstance(rows, StackedRows):
            raise InputError(f"{name} must be StackedRows.of(x, y, rows), got {type(rows).__name__}.")
        if rows.networks != len(self) or rows.x.shape[1] != self.widths[0]:
            raise InputError(
                f"{name}: these rows are for {rows.networks} networks with {rows.x.shape[1]} inputs, but the stack "
                f"has {len(self)} with {self.widths[0]}. Pass rows for this stack."
            )

    def inputs(self, x: Any, name: str = "x") -> Tensor:
        """Return inputs on the stack's device, (n, inputs) for all networks or (E, n, inputs).

        Args:
            x: A tensor or array of either shape, or `StackedRows`, which give inputs in the networks' units, padded to
                the longest list of rows.
            name: Its name in messages.
        """
        if isinstance(x, StackedRows):
            return self.placed(x, name).inputs()
        values = as_input(x, name, self.device, self.dtype).to(self.dtype)
        fits = values.dim() == 2 or (values.dim() == 3 and len(values) == len(self))
        if not fits or values.shape[-1] != self.widths[0]:
            raise InputError(
                f"{name} has shape {tuple(values.shape)}. Pass (n, {self.widths[0]}) or ({len(self)}, n, "
                f"{self.widths[0]})."
            )
        return values


def _rate(module: nn.Module) -> float:
    return float(getattr(module, "p", 0.0))
