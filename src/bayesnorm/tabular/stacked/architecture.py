"""Read the layers of networks of a stack from `nn.Sequential`s of one shape."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ...errors import NetworkError

# The suffix of a skip connection's name where it joins the layers.
END = "end"


class Skip(nn.Sequential):
    """Layers with a skip connection, `h + layers(h)`, of the same width."""

    def forward(self, h: Tensor) -> Tensor:
        result: Tensor = h + super().forward(h)
        return result


@dataclass(frozen=True)
class Layer:
    """A layer without weights.

    Args:
        name: Its name in the network's state.
    """

    name: str

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of one network's weights, by name in its state."""
        return {}


class ReLU(Layer):
    """An `nn.ReLU`."""


class Drop(Layer):
    """An `nn.Dropout`; the rate may differ between networks."""


class Fork(Layer):
    """The start of the skip connection of a `Skip`."""


class Join(Layer):
    """The end of a skip connection, where both branches are added."""


@dataclass(frozen=True)
class Dense(Layer):
    """An `nn.Linear`."""

    inputs: int
    outputs: int
    bias: bool

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        weight = {f"{self.name}.weight": (self.outputs, self.inputs)}
        return weight | ({f"{self.name}.bias": (self.outputs,)} if self.bias else {})


@dataclass(frozen=True)
class Norm(Layer):
    """An `nn.BatchNorm1d`."""

    channels: int
    eps: float
    momentum: float

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{self.name}.weight": (self.channels,), f"{self.name}.bias": (self.channels,)}


def architecture(networks: Sequence[nn.Sequential]) -> tuple[Layer, ...]:
    """Return the layers of `networks`, which must be the same for all."""
    first, *others = [tuple(_layer(name, module) for name, module in leaves(network)) for network in networks]
    for number, layers in enumerate(others, 1):
        if layers != first:
            raise NetworkError(
                f"networks: entry {number} has other layers than entry 0. All networks of a stack must have the same "
                "layers."
            )
    return first


def leaves(network: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield names and layers in running order, including those of nested sequences."""
    for name, module in network._modules.items():
        if type(module) is nn.Sequential:
            yield from leaves(module, f"{prefix}{name}.")
        elif isinstance(module, Skip):
            yield f"{prefix}{name}", module
            yield from leaves(nn.Sequential(OrderedDict(module._modules)), f"{prefix}{name}.")
            yield f"{prefix}{name}.{END}", module
        elif module is not None:
            yield f"{prefix}{name}", module


def _layer(name: str, module: nn.Module) -> Layer:
    """Return the layer for a module, or raise an error for a kind that a stack cannot have."""
    if isinstance(module, Skip):
        return Join(name) if name.endswith(f".{END}") else Fork(name)
    if isinstance(module, nn.Linear):
        return Dense(name, module.in_features, module.out_features, module.bias is not None)
    if isinstance(module, nn.BatchNorm1d) and module.momentum is not None:
        return Norm(name, module.num_features, module.eps, module.momentum)
    if isinstance(module, nn.Dropout):
        return Drop(name)
    if isinstance(module, nn.ReLU):
        return ReLU(name)
    raise NetworkError(
        f"networks: layer {name!r} is {type(module).__name__}. Use nn.Linear, nn.BatchNorm1d, nn.Dropout, nn.ReLU and "
        "Skip."
    )
