"""Several tensors that a network takes as its inputs, used like one tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, cast

import torch
from torch import Tensor, nn


class Inputs:
    """The inputs of a network that takes several: they are indexed, split and moved together, like one tensor.

    Code that runs a network has to treat one tensor and several alike, so this is passed where a `Tensor` is declared.

    Args:
        args: The arguments of forward by position.
        kwargs: Its arguments by name.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.args, self.kwargs = args, dict(kwargs)

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors."""
        return [*self.args, *self.kwargs.values()]

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Return the results of a function of every tensor."""
        return type(self)(tuple(map(function, self.args)), {key: function(value) for key, value in self.kwargs.items()})

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, rows: Any) -> Self:
        return self.map(lambda tensor: tensor[rows.to(tensor.device) if isinstance(rows, Tensor) else rows])

    def __repr__(self) -> str:
        parts = [f"{tuple(tensor.shape)}" for tensor in self.args]
        return f"Inputs({', '.join([*parts, *(f'{key}={tuple(v.shape)}' for key, v in self.kwargs.items())])})"

    @property
    def shape(self) -> tuple[Any, ...]:
        """The number of examples, and the shape of one example of every tensor."""
        return len(self), *(tuple(tensor.shape[1:]) for tensor in self.tensors)

    @property
    def dtype(self) -> Any:
        """The dtypes of all tensors."""
        return tuple(tensor.dtype for tensor in self.tensors)

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device

    @property
    def is_cuda(self) -> bool:
        return self.tensors[0].is_cuda

    def is_floating_point(self) -> bool:
        return any(tensor.is_floating_point() for tensor in self.tensors)

    def dim(self) -> int:
        """Return 0: what is done for images or rows of a table does not apply."""
        return 0

    def numel(self) -> int:
        return sum(tensor.numel() for tensor in self.tensors)

    def clone(self, **_: Any) -> Self:
        return self.map(torch.clone)

    def cpu(self) -> Self:
        return self.map(Tensor.cpu)

    def element_size(self) -> int:
        return max(tensor.element_size() for tensor in self.tensors)

    def split(self, size: int) -> list[Self]:
        return [self[start : start + size] for start in range(0, len(self), size)]

    def chunk(self, count: int) -> list[Self]:
        return self.split(-(-len(self) // count))


def forward_arguments(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a forward pass over inputs."""
    return (x.args, x.kwargs) if isinstance(x, Inputs) else ((x,), {})


def run_forward(network: Callable[..., Any], x: Any) -> Any:
    """Return what a network, or a function of its inputs, returns for one tensor or several."""
    return network(*x.args, **x.kwargs) if isinstance(x, Inputs) and isinstance(network, nn.Module) else network(x)


def joined_rows(parts: list[Tensor]) -> Tensor:
    """Return inputs one after the other."""
    first: Any = parts[0]
    if not isinstance(first, Inputs):
        return torch.cat(parts)
    columns: Any = [part.tensors for part in cast(list[Inputs], parts)]
    joined = iter([torch.cat(column) for column in zip(*columns, strict=True)])
    return cast(Tensor, first.map(lambda _: next(joined)))


def equal_rows(x: Tensor, other: Tensor) -> bool:
    """Return whether inputs equal others, or the single example of the others."""
    pairs = zip(x.tensors, other.tensors, strict=True) if isinstance(x, Inputs) else [(x, other)]
    return all(bool((tensor == single).all()) for tensor, single in pairs)
