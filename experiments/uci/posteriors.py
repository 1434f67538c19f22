"""The posteriors of the benchmark over the networks of a stack, made by the package's methods."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bayesnorm.methods import MCBN, BatchNormMethod, GaussianBN, StochasticBN
from bayesnorm.network import UnitMoments
from bayesnorm.tabular.stacked import Stack, StackedRows
from bayesnorm.theory import UnitGaussians, central_limit, kl_divergence, weight_decay_prior

from ..stacked_networks import (
    BatchNormSampler,
    batch_statistics,
    batchnorm_sampler,
    first_rows,
    in_target_units,
    network_means,
    own_targets,
    stacked_moments,
)
from .scoring import matched

RANK = 16

BY_CRPS, CENTRED_BY_CRPS, BY_ELBO = "MCBN M' by CRPS", "MCBN centred M' by CRPS", "MCBN M' by ELBO"
"""MCBN with another effective batch size."""

MULTIPLES = tuple(2.0**k for k in range(-3, 9))
"""Values of M' / M to try."""

ELBO_ROWS = 1000
"""Most training rows for the likelihood."""


def batchnorm_posteriors(
    stack: Stack, rows: StackedRows, batch_size: int, samples: int
) -> tuple[dict[str, BatchNormSampler], UnitMoments]:
    """Return the posteriors over batch-norm statistics, all from the same batches, and the moments of single rows.

    All are centred on the mean of the batch statistics, as published, so methods differ only in their fluctuations.
    """
    statistics = batch_statistics(stack, rows, batch_size, samples)
    moments = stacked_moments(stack, rows, batch_size)
    methods: dict[str, BatchNormMethod] = {
        "MCBN": MCBN(batch_size, samples, center="batch"),
        "MCBN centred": MCBN(batch_size, samples, center="running"),
        "GaussianBN": GaussianBN(batch_size, samples, center="batch"),
        f"GaussianBN rank {RANK}": GaussianBN(batch_size, samples, center="batch", rank=min(RANK, samples - 1)),
        "StochasticBN": StochasticBN(batch_size, samples, center="batch"),
    }
    executable = in_target_units(stack, rows)
    samplers = {
        name: batchnorm_sampler(method, statistics if method.from_batches else moments, executable)
        for name, method in methods.items()
    }
    centred = replace(samplers["GaussianBN"].posterior, batch_mean=samplers["MCBN"].posterior.batch_mean)
    samplers["GaussianBN"] = replace(samplers["GaussianBN"], posterior=centred)
    return samplers, moments


def elbos(
    sampler: BatchNormSampler,
    rows: StackedRows,
    moments: UnitMoments,
    weight_decay: Tensor,
    precision: Tensor,
    samples: int,
) -> Tensor:
    """Return the ELBO of every network at every M' = M * MULTIPLES, (M', E).

    Args:
        sampler: MCBN's posterior.
        rows: Training rows, of which some are used.
        moments: Moments of single rows, for the central-limit Gaussians.
        weight_decay: lambda of lambda/2 |W|^2, (E,).
        precision: tau in the target's units, (E,).
        samples: T, the number of samples.
    """
    some, lengths = first_rows(rows, ELBO_ROWS), rows.lengths.tolist()
    y, seen = own_targets(some), some.mask.unsqueeze(-1)
    own_units = precision.cpu() * rows.scales.y_std.flatten().double().cpu().square()  # where weight decay applies
    networks = _unit_gaussians(moments)
    priors = [  # half of lambda, because the penalty is lambda / 2 |W|^2
        weight_decay_prior(n, float(tau), float(decay) / 2)
        for n, tau, decay in zip(lengths, own_units, weight_decay, strict=True)
    ]
    bounds = []
    for multiple in MULTIPLES:
        size = sampler.posterior.fitted_batch_size * multiple
        predictive = matched(*sampler.at_batch_size(size).moments(some, samples), precision)
        log_likelihood = network_means(predictive.expected_log_prob(y), seen).cpu() * torch.tensor(lengths)
        kl = [float(kl_divergence(q.at_batch_size(size), p).sum()) for q, p in zip(networks, priors, strict=True)]
        bounds.append(log_likelihood - torch.tensor(kl))
    return torch.stack(bounds)


def _unit_gaussians(moments: UnitMoments) -> list[UnitGaussians]:
    """Return the central-limit Gaussians of each network's units."""
    statistics = moments.statistics
    parts = [
        part.double().cpu()
        for part in (statistics.mean[0], statistics.var[0], moments.mean_std.square(), moments.square_std.square())
    ]
    return [
        central_limit(statistics.layers, mean, var, mean_var, square_var, statistics.batch_size)
        for mean, var, mean_var, square_var in zip(*parts, strict=True)
    ]
