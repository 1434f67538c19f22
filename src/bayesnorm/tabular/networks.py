"""Build networks for tables: encodings of their inputs, layers, and the posterior of each method.

An encoding turns each input into several numbers, so that a linear layer can fit nonlinear functions. Encodings are
fitted to training inputs once and then fixed; the inputs themselves are passed on too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import BayesNormError
from ..likelihoods import Likelihood
from ..methods import MCBN, BatchNormMethod, GaussianBN, MCDropout, StochasticBN
from ..posterior import Posterior, deterministic
from .stacked import Skip

BATCH_STATISTICS = ("mcbn", "gaussian", "stochastic")
"""The methods that sample batch statistics."""
METHODS = (*BATCH_STATISTICS, "dropout", "ensemble")

# Epsilon of batch norm, which keeps units finite that are constant on a batch.
EPS = 1e-5

# Number of batch-norm layers, counted from the last, whose statistics are sampled; all earlier layers run once for all
# samples. The variance of the samples is scaled anyway (`search_results.py`), so other layers would add little.
LATE_LAYERS = 1

# Rank of the covariance of batch statistics for the method "gaussian".
RANK = 64


def network_for(
    method: str, inputs: int, outputs: int, hidden: Sequence[int], dropout_rate: float, seed: int
) -> nn.Sequential:
    """Return a network with new weights, without its encoding: linear, batch norm and ReLU for each hidden layer.

    Dropout follows each ReLU if the rate is above 0. The method "dropout" has no batch norm. Every hidden layer except
    the first has a skip connection if it is as wide as the layer before.
    """
    normed = method != "dropout"
    layers: list[nn.Module] = []
    generator = torch.Generator().manual_seed(seed)
    for number, (fan_in, fan_out) in enumerate(pairwise([inputs, *hidden])):
        block: list[nn.Module] = [_linear(fan_in, fan_out, generator, bias=not normed)]
        block += [nn.BatchNorm1d(fan_out, eps=EPS)] * normed + [nn.ReLU()]
        block += [nn.Dropout(float(dropout_rate))] * bool(dropout_rate > 0 or not normed)
        layers += [Skip(*block)] if number and fan_in == fan_out else block
    return nn.Sequential(*layers, _linear(hidden[-1], outputs, generator, bias=True))


def _linear(fan_in: int, fan_out: int, generator: torch.Generator, *, bias: bool) -> nn.Linear:
    """Return a linear layer with torch's default initialisation, from a generator that no other thread uses."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, fan_in, fan_out, bias=bias)
    bound = 1 / math.sqrt(fan_in)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


def encoder_for(encoding: str, x: Tensor) -> nn.Module:
    """Return the encoder of a network's inputs, fitted to the training inputs, (rows, inputs).

    Args:
        encoding: "plain", "bins 16" or "waves 8", with any number.
        x: The inputs.
    """
    kind, count = parsed_encoding(encoding)
    if kind == "bins":
        return PiecewiseLinear.from_inputs(x, count)
    return Waves.from_inputs(x, count) if kind == "waves" else nn.Identity()


def parsed_encoding(encoding: str) -> tuple[str, int]:
    """Return the kind and the number of an encoding, or raise an error."""
    kind, _, count = str(encoding).partition(" ")
    if kind == "plain" and not count:
        return kind, 0
    if kind in ("bins", "waves") and count.isascii() and count.isdigit() and 1 <= int(count) <= 1_000:
        return kind, int(count)
    raise BayesNormError(
        f'encoding must be "plain", "bins N" or "waves N" with a number N from 1 to 1000, got {encoding!r}.'
    )


def posterior_for(
    method: str, network: nn.Module, x: Tensor, likelihood: Likelihood, batch_size: int, states: int, seed: int
) -> Posterior:
    """Return the posterior of a method for one trained network.

    Args:
        method: One of `METHODS`; "ensemble" makes the network deterministic.
        network: A network that was trained on x.
        x: Training inputs.
        likelihood: The likelihood, which maps outputs to distributions of targets.
        batch_size: The training batch size.
        states: Number of batches whose statistics are stored.
        seed: Seed for the choice of these batches.
    """
    if method == "ensemble":
        return deterministic(network, likelihood)
    if method == "dropout":
        return MCDropout().fit(network, None, likelihood)
    fitted: Any = batchnorm_method(method, batch_size, states).fit(network, x, likelihood, seed=seed)
    return fitted.at_layers(LATE_LAYERS)


def batchnorm_method(method: str, batch_size: int, states: int) -> BatchNormMethod:
    """Return the batch-norm method with a name in `BATCH_STATISTICS`."""
    if method == "mcbn":
        return MCBN(batch_size, states)
    if method == "gaussian":
        return GaussianBN(batch_size, states, rank=min(RANK, states - 1))
    return StochasticBN(batch_size, states)


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
        column, low, width = [torch.empty(0, dtype=torch.long, device=x.device)], [x.new_empty(0)], [x.new_empty(0)]
        for number, values in enumerate(_some(x).T):
            edges = values.unique()
            if len(edges) < LEAST_VALUES:
                continue
            if len(edges) > bins + 1:
                levels = torch.linspace(0, 1, bins + 1, dtype=torch.float64, device=x.device)
                edges = torch.quantile(values.double(), levels).to(x.dtype).unique()
            column.append(torch.full((len(edges) - 1,), number, device=x.device))
            low.append(edges[:-1])
            width.append(edges.diff())
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
        place = (torch.searchsorted(edges[bent], values, right=True) - 1).clamp_min(0)
        bin_of = first[bent, None] + torch.minimum(place, counts[bent, None] - 1)  # infinite values: the last bin
        inside = ((values - self.low[bin_of]) / self.width[bin_of]).clamp(0, 1)
        weights = linear.weight[:, inputs:].T.contiguous()
        below = weights.cumsum(0) - weights
        table = torch.cat([below - below[first[self.column]], weights])
        places, shares = torch.cat([bin_of, bin_of + len(weights)]).T, torch.cat([torch.ones_like(inside), inside]).T
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
        bent = [number for number, values in enumerate(_some(x).T) if len(values.unique()) >= LEAST_VALUES]
        generator = torch.Generator().manual_seed(seed)
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
