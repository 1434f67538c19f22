"""Encode the inputs of a network for tables: each number as several, so that a linear layer can fit nonlinear
functions.

Both encodings are fitted to training inputs once and then fixed; the inputs themselves are passed on too.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..arguments import require_seed, require_whole

# Inputs with fewer different values are not encoded: a binary input has no shape to fit.
LEAST_VALUES = 3

# Bins per input from which on a table look-up is faster than a matrix product.
LOOKED_UP = 24

# Most rows that quantiles are computed from.
MOST_ROWS = 100_000


class PiecewiseLinear(nn.Module):
    """Append to each input its position in each of its bins: 0 below, 1 above, and linear within (Gorishniy et al.
    2022).

    With a linear layer after it, this gives a sum of piecewise linear functions of the single inputs. Beyond the
    outermost bins only the input itself changes.

    Args:
        column: The input of each bin, in ascending order, (bins,).
        low: The lower end of each bin, in ascending order for each input, (bins,).
        width: The width of each bin, (bins,).
    """

    def __init__(self, column: Tensor, low: Tensor, width: Tensor) -> None:
        super().__init__()
        self.register_buffer("column", column.long())
        self.register_buffer("low", low)
        self.register_buffer("width", width)

    @classmethod
    def from_inputs(cls, x: Tensor, bins: int) -> Self:
        """Return the encoding whose bins end at quantiles of training inputs (rows, inputs), with a limit per input."""
        bins = require_whole("bins", bins)
        column, low, width = [], [], []
        for number, values in enumerate(_some(x).T):
            own = values.unique()
            if len(own) < LEAST_VALUES:
                continue
            edges = own
            if len(own) > bins + 1:
                levels = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=x.device)
                edges = torch.quantile(values.double(), levels).to(x.dtype).unique()
            column.append(torch.full((len(edges) - 1,), number, device=x.device))
            low.append(edges[:-1])
            width.append(edges.diff())
        if not column:
            return cls(torch.empty(0, dtype=torch.long, device=x.device), x.new_empty(0), x.new_empty(0))
        return cls(torch.cat(column), torch.cat(low), torch.cat(width))

    def forward(self, x: Tensor, linear: nn.Linear | None = None) -> Tensor:
        """Return inputs and their positions in bins, or the output of a linear layer for them."""
        if linear is not None and x.dim() == 2 and len(self.column) >= LOOKED_UP * x.shape[1]:
            return self._looked_up(x, linear)
        inside = ((x[..., self.column] - self.low) / self.width).clamp(0, 1)
        encoded = torch.cat([x, inside], -1)
        return encoded if linear is None else linear(encoded)

    def _looked_up(self, x: Tensor, linear: nn.Linear) -> Tensor:
        """Return the output of a linear layer for encoded inputs, without encoding them.

        All bins below an input's bin are 1 and all above are 0, so sums of weights up to every bin, computed once,
        replace products with ones and zeros.
        """
        inputs, device = x.shape[1], x.device
        counts = self.column.bincount(minlength=inputs)
        first, bent = counts.cumsum(0) - counts, counts.nonzero()[:, 0]
        edges = x.new_full((inputs, int(counts.max())), math.inf)
        edges[self.column, torch.arange(len(self.column), device=device) - first[self.column]] = self.low
        values = x.T[bent].contiguous()
        found = (torch.searchsorted(edges[bent], values, right=True) - 1).clamp_min(0)
        own = first[bent, None] + torch.minimum(found, counts[bent, None] - 1)  # infinite values are in the last bin
        inside = ((values - self.low[own]) / self.width[own]).clamp(0, 1)
        weights = linear.weight[:, inputs:].T.contiguous()
        below = weights.cumsum(0) - weights
        table = torch.cat([below - below[first[self.column]], weights])
        places, shares = torch.cat([own, own + len(weights)]).T, torch.cat([torch.ones_like(inside), inside]).T
        bins = F.embedding_bag(places.contiguous(), table, per_sample_weights=shares.contiguous(), mode="sum")
        return F.linear(x, linear.weight[:, :inputs], linear.bias) + bins

    column: Tensor
    low: Tensor
    width: Tensor


class Encoded(nn.Sequential):
    """An encoding followed by layers, the first of them linear: as `nn.Sequential`, but faster for many bins."""

    def forward(self, x: Tensor) -> Tensor:
        encoder, first, *others = self
        h = encoder(x, first) if isinstance(encoder, PiecewiseLinear) else first(encoder(x))
        for layer in others:
            h = layer(h)
        result: Tensor = h
        return result


class Waves(nn.Module):
    """Append to each input its sines and cosines at several frequencies.

    Args:
        column: The input of each frequency, (waves,).
        frequency: Frequencies, in periods per unit of the input, (waves,).
    """

    def __init__(self, column: Tensor, frequency: Tensor) -> None:
        super().__init__()
        self.register_buffer("column", column.long())
        self.register_buffer("frequency", frequency)

    @classmethod
    def from_inputs(cls, x: Tensor, waves: int, spread: float = 0.3, seed: int = 0) -> Self:
        """Return the encoding with normally distributed frequencies for each of the inputs (rows, inputs).

        Args:
            x: Training inputs, standardised; they only show which inputs have more than two values.
            waves: Number of frequencies per input.
            spread: Standard deviation of the frequencies.
            seed: Determines the frequencies.
        """
        waves = require_whole("waves", waves)
        bent = [number for number, values in enumerate(_some(x).T) if len(values.unique()) >= LEAST_VALUES]
        generator = torch.Generator().manual_seed(require_seed(seed))
        frequency = spread * torch.randn(len(bent) * waves, generator=generator, dtype=torch.float64)
        column = torch.tensor(bent, dtype=torch.long).repeat_interleave(waves)
        return cls(column.to(x.device), frequency.to(x))

    def forward(self, x: Tensor) -> Tensor:
        turns = (2 * math.pi) * x[..., self.column] * self.frequency
        return torch.cat([x, turns.sin(), turns.cos()], -1)

    column: Tensor
    frequency: Tensor


def _some(x: Tensor) -> Tensor:
    """Return evenly spaced rows, at most as many as quantiles are computed from."""
    return x[:: -(-len(x) // MOST_ROWS)] if len(x) else x
