"""Networks for tables, and the posterior that each method makes of a trained one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from ..likelihoods import Likelihood
from ..methods import MCBN, BatchNormMethod, GaussianBN, MCDropout, StochasticBN, ensemble
from ..nets import paper_mlp
from ..network import isolated_torch_randomness
from ..posterior import Posterior

BATCH_STATISTICS = ("mcbn", "gaussian", "stochastic")
"""The methods whose posteriors are over batch statistics."""
METHODS = (*BATCH_STATISTICS, "dropout", "ensemble")

# Epsilon of batch norm; units that are constant on a batch stay finite.
EPS = 1e-5

# Directions that "gaussian" keeps of the batch statistics' covariance.
RANK = 64


def network_for(
    method: str, inputs: int, outputs: int, hidden: Sequence[int], dropout_rate: float | None, seed: int
) -> nn.Sequential:
    """Return a network with fresh weights: the paper's with batch norm, or one with dropout after each hidden layer."""
    if method != "dropout":
        return paper_mlp(inputs, outputs, hidden, eps=EPS, seed=seed)
    layers: list[nn.Module] = []
    with isolated_torch_randomness(seed):
        for fan_in, fan_out in pairwise([inputs, *hidden]):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU(), nn.Dropout(float(dropout_rate or 0.0))]
        return nn.Sequential(*layers, nn.Linear(hidden[-1], outputs))


def posterior_for(
    method: str,
    networks: Sequence[nn.Module],
    x: Tensor,
    likelihood: Likelihood,
    batch_size: int,
    states: int,
    seed: int,
) -> Posterior:
    """Return the method's posterior of one trained network, or of several members.

    Args:
        method: One of `METHODS`.
        networks: One network trained on x, or the members of an ensemble.
        x: Training inputs.
        likelihood: How outputs become distributions of targets.
        batch_size: M, the batch size of training.
        states: Number of batches whose statistics are kept.
        seed: Seed of the choice of these batches.
    """
    if method == "ensemble":
        return ensemble(networks, likelihood)
    if method == "dropout":
        return MCDropout().fit(networks[0], None, likelihood)
    return batchnorm_method(method, batch_size, states).fit(networks[0], x, likelihood, seed=seed)


def batchnorm_method(method: str, batch_size: int, states: int) -> BatchNormMethod:
    """Return the method over batch statistics that goes by one of the names in `METHODS`."""
    if method == "mcbn":
        return MCBN(batch_size, states)
    if method == "gaussian":
        return GaussianBN(batch_size, states, rank=min(RANK, states - 1))
    return StochasticBN(batch_size, states)
