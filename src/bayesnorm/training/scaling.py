"""Wrap a network that was trained on standardised data, so that inputs and outputs are in raw units."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn


class Rescaled(nn.Module):
    """Compute `network((x - x_mean) / x_std) * y_std + y_mean`; constant columns get a standard deviation of 1.

    Args:
        network: Network that was trained on standardised x and y.
        x_mean, x_std, y_mean, y_std: Moments of the training rows; standard deviations divide by N (ddof 0).
    """

    def __init__(self, network: nn.Module, x_mean: Tensor, x_std: Tensor, y_mean: Tensor, y_std: Tensor) -> None:
        super().__init__()
        self.network = network
        for name, value in {"x_mean": x_mean, "x_std": x_std, "y_mean": y_mean, "y_std": y_std}.items():
            self.register_buffer(name, value.detach().clone())

    @classmethod
    def from_data(cls, network: nn.Module, x: Tensor, y: Tensor) -> Self:
        """Return the network with the means and standard deviations of training rows `x`, `y`."""
        (x_std, x_mean), (y_std, y_mean) = (torch.std_mean(value, dim=0, correction=0) for value in (x, y))
        return cls(network, x_mean, torch.where(x_std > 0, x_std, 1.0), y_mean, torch.where(y_std > 0, y_std, 1.0))

    def standardise(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return raw x and y in the inner network's units."""
        return (x - self.x_mean) / self.x_std, (y - self.y_mean) / self.y_std

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.network((x - self.x_mean) / self.x_std) * self.y_std + self.y_mean
        return result

    x_mean: Tensor
    x_std: Tensor
    y_mean: Tensor
    y_std: Tensor
