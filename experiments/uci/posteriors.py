"""The methods of the benchmark on stacks of networks: the draws of each."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesnorm.posterior.fluctuations import LowRankGaussian
from bayesnorm.stacked import Stack, StackedRows, StackedStatistics, UnitMoments

RANK = 16

BN_DRAWN = ("MCBN", "MCBN centred", "GaussianBN", f"GaussianBN rank {RANK}", "StochasticBN")
"""Posteriors at the batch size of training."""

BY_CRPS, CENTRED_BY_CRPS, BY_ELBO = "MCBN M' by CRPS", "MCBN centred M' by CRPS", "MCBN M' by ELBO"
"""MCBN with another effective batch size."""

MULTIPLES = tuple(2.0**k for k in range(-3, 9))
"""M' / M that are tried."""


def batchnorm_draws(statistics: StackedStatistics, units: UnitMoments, seed: int) -> dict[str, StackedStatistics]:
    """Draws of the posteriors over batch-norm statistics, by method; as many as `statistics` has."""
    published = statistics.about("batch")
    eps = torch.cat([torch.full((layer.channels,), layer.eps) for layer in statistics.layers]).to(statistics.running)
    relative = 2 * units.std_var.sqrt() * units.std_loc / (units.std_loc.square() + eps)
    theory = torch.cat([units.mean_var.sqrt(), relative], -1).to(statistics.running.dtype)
    own = statistics.deviations.double().square().mean(0).sqrt().to(statistics.deviations.dtype)
    return {
        "MCBN": published,
        "MCBN centred": statistics.about("running"),
        "GaussianBN": published.with_deviations(_normal(statistics, seed) * theory),
        f"GaussianBN rank {RANK}": published.with_deviations(_correlated(statistics, seed)),
        "StochasticBN": published.with_deviations(_normal(statistics, seed) * own),
    }


def _normal(statistics: StackedStatistics, seed: int) -> Tensor:
    shape = statistics.deviations.shape
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(statistics.deviations)


def _correlated(statistics: StackedStatistics, seed: int) -> Tensor:
    """Draws of the normal distribution whose covariance has the leading directions of each network's batches."""
    draws = []
    for e in range(statistics.deviations.shape[1]):
        deviations = statistics.deviations[:, e]
        gaussian = LowRankGaussian.of(deviations, min(RANK, len(deviations) - 1))
        draws.append(gaussian.sample(len(deviations), torch.Generator().manual_seed(seed)))
    return torch.stack(draws, 1)


def elbos(
    stack: Stack, rows: StackedRows, statistics: StackedStatistics, units: UnitMoments, weight_decay: Tensor,
    precision: Tensor,
) -> Tensor:  # fmt: skip
    """ELBO less what is the same for all M', at every M' = M * MULTIPLES, (M', E).

    E_q[log p] of training rows needs only the outputs' moments: -tau / 2 ((y - mean)^2 + variance), summed over rows.
    The divergence is that of the central-limit Gaussians from the prior that weight decay implies; see
    `selection.priors`.

    Args:
        weight_decay: lambda of lambda/2 |W|^2, (E,).
        precision: tau in the target's units, (E,).
    """
    assert rows.scales is not None
    raw = rows.scales.y_std.flatten().double()
    tau = precision.to(raw) * raw.square()  # in the networks' units, where weight decay belongs
    some = rows.thinned(1000)
    n = rows.lengths.to(raw)
    prior_var = 1 / (n * tau * weight_decay.to(raw))  # half of lambda, as the penalty is lambda / 2 |W|^2
    found = []
    for multiple in MULTIPLES:
        size = statistics.fitted_batch_size * multiple
        mean, var = stack.moments_under(statistics.at_batch_size(size), some)
        squares = some.mean((mean - some.targets()).double().square().squeeze(-1) + var.double().squeeze(-1))
        mean_var, std_var = (v.double() / multiple for v in (units.mean_var, units.std_var))
        divergence = -0.5 * mean_var.log().sum(-1) - 0.5 * std_var.log().sum(-1)
        divergence = divergence + (std_var + units.std_loc.double().square()).sum(-1) / (2 * prior_var)
        found.append(-0.5 * tau * n * squares - divergence)
    return torch.stack(found)
