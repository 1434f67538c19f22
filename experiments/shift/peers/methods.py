"""The methods by name, and those that need no optimiser.

A method is made from a `Source` and the number of streams, G. Its `predict` takes the next B images of each stream,
(B, G, 3, H, W) as network input, returns their logits (B, G, K), and adapts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .grouped import BatchNorm, BlendedNorm, GroupedNorm, grouped_network, run
from .sources import Source


class Method(Protocol):
    """A method that predicts G streams while it adapts to them."""

    def predict(self, x: Tensor) -> Tensor:
        """Return the logits (B, G, K) of the next images, (B, G, 3, H, W), and adapt."""


Maker = Callable[[Source, int], Method]
"""Makes a method for G streams."""


class Statistics:
    """A network with the statistics of one kind of layer; its parameters never change."""

    def __init__(self, source: Source, groups: int, layer: Callable[..., GroupedNorm] = GroupedNorm) -> None:
        self.network = grouped_network(source.network, groups, layer)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return run(self.network, x)


class Separately:
    """Runs a method of single streams on G streams, one after the other."""

    def __init__(self, make: Callable[[Source], Method], source: Source, groups: int) -> None:
        self.methods = [make(source) for _ in range(groups)]

    def predict(self, x: Tensor) -> Tensor:
        parts = [method.predict(x[:, place : place + 1]) for place, method in enumerate(self.methods)]
        return torch.cat(parts, 1)


def no_adaptation(source: Source, groups: int) -> Method:
    """Return the network as it is."""
    return Statistics(source, groups)


def batch_statistics(source: Source, groups: int) -> Method:
    """Return prediction-time batch norm (Nado et al. 2020)."""
    return Statistics(source, groups, BatchNorm)


def blended_statistics(source: Source, groups: int) -> Method:
    """Return the blend of Schneider et al. 2020, with N = 16."""
    return Statistics(source, groups, BlendedNorm)
