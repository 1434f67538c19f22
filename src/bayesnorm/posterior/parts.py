"""The parts of batch statistics that are compared as wholes, and how far off a part is."""

from __future__ import annotations

import torch
from torch import Tensor

from ..network import BatchNormLayer

# Beyond this, a channel's squared deviation counts by its logarithm: one that hardly ever fires would decide alone.
PLAIN_UP_TO = 100.0


class Parts:
    """The means, and the log-variances, of every layer: 2L parts of 2C coordinates.

    Args:
        layers: The layers, in running order.
        device: Where the coordinates are.
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

    def distances(self, standardised: Tensor, known: Tensor) -> Tensor:
        """Return the distance of every part and then their mean, (..., 2L + 1), from squared deviations (..., 2C)."""
        return with_their_mean(self.means(tempered(standardised)), known)


def tempered(squares: Tensor) -> Tensor:
    """Return squared deviations as they count in a distance."""
    return squares.clamp_max(PLAIN_UP_TO) + PLAIN_UP_TO * (squares / PLAIN_UP_TO).clamp_min(1).log()


def with_their_mean(distances: Tensor, known: Tensor) -> Tensor:
    """Return distances of parts, NaN where a part does not vary, and their mean after them, (..., 2L + 1)."""
    parts = torch.where(known, distances, torch.nan)
    return torch.cat([parts, parts.nanmean(-1, keepdim=True)], -1)
