"""Named tensors with a leading axis of networks, one behind the other in one buffer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


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
        found = Bundle(self.shapes, len(members), self.flat)
        at = members.to(self.flat.device)
        for name, tensor in self.tensors.items():
            torch.index_select(tensor, 0, at, out=found[name])
        return found

    def put(self, members: Tensor, values: Bundle) -> None:
        """Overwrite the part of some networks, by their indices."""
        at = members.to(self.flat.device)
        for name, tensor in self.tensors.items():
            tensor.index_copy_(0, at, values[name])

    def to(self, device: torch.device) -> Bundle:
        found = Bundle(self.shapes, self.networks, self.flat.new_empty(0, device=device))
        found.flat.copy_(self.flat)
        return found
