"""The parts of batch statistics that are compared as a whole, and the distance of a part."""

from __future__ import annotations

import torch
from torch import Tensor

from ..network import BatchNormLayer

# Larger squared deviations only count by their logarithm. Otherwise a channel that rarely fires could decide alone.
PLAIN_UP_TO = 100.0


class Parts:
    """The means, and the log-variances, of every layer: 2L parts of 2C coordinates.

    Args:
        layers: The layers, in running order.
        device: Device of the coordinates.
    """

    def __init__(self, layers: tuple[BatchNormLayer, ...], device: torch.device) -> None:
        self.sizes = [layer.channels for layer in layers] * 2
        channels = torch.tensor(self.sizes, device=device)
        self.channels = channels.double()
        self.part = torch.repeat_interleave(torch.arange(len(channels), device=device), channels)

    def means(self, values: Tensor) -> Tensor:
        """Return the mean over the channels of every part, (..., 2L), of values (..., 2C)."""
        sums = values.new_zeros(*values.shape[:-1], len(self.channels), dtype=torch.float64)
        return sums.index_add_(-1, self.part, values.double()) / self.channels

    def spread(self, values: Tensor) -> Tensor:
        """Return every part's value for all of its channels, (..., 2C)."""
        return values[..., self.part]

    def distances(self, standardised: Tensor, varies: Tensor) -> Tensor:
        """Return the distance of every part, followed by their mean, (..., 2L + 1), of squared deviations (..., 2C)."""
        return with_their_mean(self.means(log_clipped(standardised)), varies)


def log_clipped(squares: Tensor) -> Tensor:
    """Return squared deviations with large ones damped, as distances use them."""
    return squares.clamp_max(PLAIN_UP_TO) + PLAIN_UP_TO * (squares / PLAIN_UP_TO).clamp_min(1).log()


def with_their_mean(distances: Tensor, varies: Tensor) -> Tensor:
    """Return distances of parts, NaN for parts that do not vary, followed by their mean, (..., 2L + 1)."""
    parts = torch.where(varies, distances, torch.nan)
    return torch.cat([parts, parts.nanmean(-1, keepdim=True)], -1)
