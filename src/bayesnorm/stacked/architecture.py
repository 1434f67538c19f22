"""Read the layers of networks of a stack from `nn.Sequential`s of one shape."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError

# The suffix of a skip connection's name where it joins the layers.
END = "end"

# Elementwise activations without parameters.
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
    """Layers with a skip connection, `h + layers(h)`, of the same width."""

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
        """Return the shapes of one network's weights, by name in its state."""
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
    """An `nn.Dropout`; the rate may differ between networks."""

    name: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


@dataclass(frozen=True)
class Activation:
    """An activation; two are equal if they print the same."""

    name: str
    text: str
    module: nn.Module = field(compare=False, repr=False)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


@dataclass(frozen=True)
class Fork:
    """The start of the skip connection of a `Skip`."""

    name: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


@dataclass(frozen=True)
class Join:
    """The end of a skip connection, where both branches are added."""

    name: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {}


Layer = Dense | Norm | Drop | Activation | Fork | Join


def architecture(networks: Sequence[nn.Module]) -> tuple[Layer, ...]:
    """Return the layers of `networks`, or refuse networks that cannot form a stack."""
    found = [tuple(_layer(i, name, module) for name, module in leaves(i, n)) for i, n in enumerate(networks)]
    first = found[0]
    for i, other in enumerate(found):
        if other != first:
            raise NetworkError(
                f"networks: entry {i} has {_difference(first, other)}. All networks of a stack must have the same "
                "layers."
            )
    if not any(isinstance(layer, Dense) for layer in first):
        raise NetworkError("networks have no nn.Linear, but at least one is needed. Add a linear layer.")
    _require_joined(first)
    parameters = [p for network in networks for p in network.parameters()]
    if len({id(p) for p in parameters}) != len(networks) * sum(len(layer.shapes) for layer in first):
        raise NetworkError("networks: some share weights with others or use a layer twice. Pass copies.")
    for p in parameters:
        if (p.device, p.dtype) != (parameters[0].device, parameters[0].dtype):
            raise NetworkError(
                f"networks: some weights are {p.dtype} on {p.device}, others {parameters[0].dtype} on "
                f"{parameters[0].device}. Convert all of them to one dtype and device."
            )
    if parameters[0].dtype not in (torch.float32, torch.float64):
        raise NetworkError(f"networks must be torch.float32 or torch.float64, got {parameters[0].dtype}.")
    if not all(p.requires_grad for p in parameters):
        raise NetworkError(
            "networks have parameters that require no gradient, but a stack trains all parameters. Set requires_grad "
            "to True."
        )
    return first


def _require_joined(layers: tuple[Layer, ...]) -> None:
    """Refuse layers whose input size differs from the output size before them: a stack might broadcast silently."""
    width: int | None = None
    around: list[int | None] = []
    for layer in layers:
        if isinstance(layer, Fork):
            around.append(width)
        elif isinstance(layer, Join):
            before = around.pop()
            if before is None or before != width:
                raise NetworkError(
                    f"networks: the layers of {layer.name!r} turn {before} numbers per row into {width}. A skip "
                    "connection needs equal numbers and a linear layer before it."
                )
        if isinstance(layer, Dense | Norm):
            takes, gives = (
                (layer.inputs, layer.outputs) if isinstance(layer, Dense) else (layer.channels, layer.channels)
            )
            if width not in (None, takes):
                raise NetworkError(
                    f"networks: layer {layer.name!r} expects {takes} numbers per row, but gets {width}. Use a layer "
                    f"with {width} inputs."
                )
            width = gives


def leaves(index: int, network: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield names and layers in running order, including those of nested sequences."""
    if type(network) is not nn.Sequential:
        raise NetworkError(f"networks: entry {index} must be an nn.Sequential, got {type(network).__name__}.")
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
    """Return the layer for a module, or refuse a kind that a stack cannot have."""
    where = f"networks: layer {name!r} of entry {index}"
    if type(module) is Skip:
        return Join(name) if name.endswith(f".{END}") else Fork(name)
    if type(module) is nn.Linear:
        return Dense(name, module.in_features, module.out_features, module.bias is not None)
    if type(module) is nn.BatchNorm1d:
        if not module.affine or not module.track_running_stats or module.momentum is None:
            raise NetworkError(f"{where} is {module}. Use batch norm with weights, running statistics and a momentum.")
        return Norm(name, module.num_features, module.eps, module.momentum)
    if type(module) is nn.Dropout:
        return Drop(name)
    if type(module) in ELEMENTWISE:
        own: Any = copy.deepcopy(module)
        if hasattr(own, "inplace"):
            own.inplace = False
        return Activation(name, repr(own), own)
    raise NetworkError(
        f"{where} is {type(module).__name__}. Use nn.Linear, nn.BatchNorm1d, nn.Dropout, activations and Skip."
    )


def _difference(first: tuple[Layer, ...], other: tuple[Layer, ...]) -> str:
    """Return a description of where a network's layers differ from those of the first one."""
    if len(first) != len(other):
        return f"{len(other)} layers, but entry 0 has {len(first)}"
    mine, theirs = next(pair for pair in zip(other, first, strict=True) if pair[0] != pair[1])
    return f"{mine} where entry 0 has {theirs}"
