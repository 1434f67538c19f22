"""Build networks for tables, and the posterior of each method for a trained network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import BayesNormError
from ..likelihoods import Likelihood
from ..methods import MCBN, BatchNormMethod, GaussianBN, MCDropout, StochasticBN
from ..posterior import Posterior, deterministic
from .encodings import PiecewiseLinear, Waves
from .stacked import Skip

BATCH_STATISTICS = ("mcbn", "gaussian", "stochastic")
"""The methods that sample batch statistics."""
METHODS = (*BATCH_STATISTICS, "dropout", "ensemble")

# Epsilon of batch norm, which keeps units finite that are constant on a batch.
EPS = 1e-5

# Number of batch-norm layers, counted from the last, whose statistics are sampled; all earlier layers run once for all
# samples. The variance of the samples is scaled anyway (`uncertainty_parts.py`), so other layers would add little.
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
