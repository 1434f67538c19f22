"""The layers that networks of a stack may have, read from `nn.Sequential`s of one shape."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError

# What the name of a way around layers ends in where it joins them.
END = "end"

# Activations without parameters that look at one number at a time.
ELEMENTWISE: tuple[type[nn.Module], ...] = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
    nn.Tanh,
)


class Skip(nn.Sequential):
    """Layers with a way around them: `h + layers(h)`, of the same width."""

    def forward(self, h: Tensor) -> Tensor:
        result: Tensor = h + super().forward(h)
        return result


@dataclass(frozen=True)
class Dense:
    """An `nn.Linear`."""

    name: str
    inputs: int
    outputs: int
    bias: bool

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of one network's weights, by name in its state."""
        weight = {f"{self.name}.weight": (self.outputs, self.inputs)}
        return weight | ({f"{self.name}.bias": (self.outputs,)} if self.bias else {})


@dataclass(frozen=True)
class Norm:
    """An `nn.BatchNorm1d`."""

    name: str
    channels: int
    eps: float
    momentum: float

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.name}.weight": (self.channels,), f"{self.name}.bias": (self.channels,)}


@dataclass(frozen=True)
class Drop:
    """An `nn.Dropout`, of a rate that may be another in every network."""

    name: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


@dataclass(frozen=True)
class Activation:
    """An activation; two are the same if they print the same."""

    name: str
    text: str
    module: nn.Module = field(compare=False, repr=False)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


@dataclass(frozen=True)
class Fork:
    """Where the way around the layers of a `Skip` begins."""

    name: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


@dataclass(frozen=True)
class Join:
    """Where it ends, and both ways are added up."""

    name: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


Layer = Dense | Norm | Drop | Activation | Fork | Join


def architecture(networks: Sequence[nn.Module]) -> tuple[Layer, ...]:
    """Return the layers that all of `networks` have, or refuse networks that make no stack."""
    found = [tuple(_layer(i, name, module) for name, module in leaves(i, n)) for i, n in enumerate(networks)]
    first = found[0]
    for i, other in enumerate(found):
        if other != first:
            raise NetworkError(
                f"networks: entry {i} has {_difference(first, other)}; networks of one shape make a stack, others need "
                "a stack of their own."
            )
    if not any(isinstance(layer, Dense) for layer in first):
        raise NetworkError("networks: hold no nn.Linear; at least one is needed.")
    _require_joined(first)
    parameters = [p for network in networks for p in network.parameters()]
    if len({id(p) for p in parameters}) != len(networks) * sum(len(layer.shapes) for layer in first):
        raise NetworkError("networks: some share weights with others or use a layer twice; copies of them would work.")
    for p in parameters:
        if (p.device, p.dtype) != (parameters[0].device, parameters[0].dtype):
            raise NetworkError(
                f"networks: some weights are {p.dtype} on {p.device} and others {parameters[0].dtype} on "
                f"{parameters[0].device}; bring all to one of them."
            )
    if parameters[0].dtype not in (torch.float32, torch.float64):
        raise NetworkError(f"networks: are {parameters[0].dtype}; torch.float32 or torch.float64 would work.")
    if not all(p.requires_grad for p in parameters):
        raise NetworkError("networks: hold parameters that require no gradient; a stack trains all of them.")
    return first


def _require_joined(layers: tuple[Layer, ...]) -> None:
    """Refuse layers that do not take what those before them give: a stack's operations might broadcast it."""
    width: int | None = None
    around: list[int | None] = []
    for layer in layers:
        if isinstance(layer, Fork):
            around.append(width)
        elif isinstance(layer, Join):
            before = around.pop()
            if before is None or before != width:
                raise NetworkError(
                    f"networks: layers of {layer.name!r} make {width} numbers per row of {before}; a way around them "
                    "needs a linear layer before it, and as many numbers as it got."
                )
        if isinstance(layer, Dense | Norm):
            takes, gives = (
                (layer.inputs, layer.outputs) if isinstance(layer, Dense) else (layer.channels, layer.channels)
            )
            if width not in (None, takes):
                raise NetworkError(
                    f"networks: layer {layer.name!r} takes {takes} numbers per row and gets {width}; a layer that "
                    f"takes {width} would work."
                )
            width = gives


def leaves(index: int, network: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield names and layers in running order, those of sequences inside sequences too."""
    if type(network) is not nn.Sequential:
        raise NetworkError(f"networks: entry {index} is {type(network).__name__}; an nn.Sequential would work.")
    for name, module in network._modules.items():
        if type(module) is nn.Sequential:
            yield from leaves(index, module, f"{prefix}{name}.")
        elif type(module) is Skip:
            yield f"{prefix}{name}", module
            yield from leaves(index, nn.Sequential(OrderedDict(module._modules)), f"{prefix}{name}.")
            yield f"{prefix}{name}.{END}", module
        elif module is not None:
            yield f"{prefix}{name}", module


def _layer(index: int, name: str, module: nn.Module) -> Layer:
    """Return the layer that a module is, or refuse a kind that no stack can hold."""
    where = f"networks: layer {name!r} of entry {index}"
    if type(module) is Skip:
        return Join(name) if name.endswith(f".{END}") else Fork(name)
    if type(module) is nn.Linear:
        return Dense(name, module.in_features, module.out_features, module.bias is not None)
    if type(module) is nn.BatchNorm1d:
        if not module.affine or not module.track_running_stats or module.momentum is None:
            raise NetworkError(
                f"{where} is {module}; batch norm with weights, running statistics and a momentum would work."
            )
        return Norm(name, module.num_features, module.eps, module.momentum)
    if type(module) is nn.Dropout:
        return Drop(name)
    if type(module) in ELEMENTWISE:
        own: Any = copy.deepcopy(module)
        if hasattr(own, "inplace"):
            own.inplace = False
        return Activation(name, repr(own), own)
    raise NetworkError(
        f"{where} is {type(module).__name__}; nn.Linear, nn.BatchNorm1d, nn.Dropout, activations and Skip would work."
    )


def _difference(first: tuple[Layer, ...], other: tuple[Layer, ...]) -> str:
    """Say in words where a network's layers differ from those of the first one."""
    if len(first) != len(other):
        return f"{len(other)} layers and entry 0 has {len(first)}"
    mine, theirs = next(pair for pair in zip(other, first, strict=True) if pair[0] != pair[1])
    return f"{mine} where entry 0 has {theirs}"
