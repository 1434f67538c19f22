"""Quantiles of a mixture, by Newton's method on the logarithm of its distribution function, inside a bracket."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import weighted_mean
from .noise import NoiseFamily

# Maximum number of Newton steps. Quantiles that have not converged by then, e.g. between distant samples, are bisected.
STEPS = 12

# Maximum number of bisections of a bracket: enough for single precision, and nearly enough for double precision.
HALVINGS = 60


def tail_quantile(loc: Tensor, scale: Tensor, weights: Tensor, noise: NoiseFamily, tail: float, side: int) -> Tensor:
    """Return the quantile of loc + scale * noise, a mixture over the first axis, with probability `tail` beyond it.

    It works with tail probabilities, because a small number keeps digits that a number near 1 has lost. All noise is
    symmetric, so the upper tail is the lower tail of the mirrored mixture. The logarithm of a tail is nearly linear or
    parabolic, so a few Newton steps are enough.

    Args:
        loc, scale: Location and scale of every sample, (n, *shape).
        weights: Weights of the samples, (n,).
        noise: The family of the noise in standard form.
        tail: Probability of the tail, at most 1/2.
        side: 1 for the lower tail, -1 for the upper tail.
    """
    shape, eps = loc.shape[1:], torch.finfo(loc.dtype).eps
    loc, scale = side * loc.flatten(1), scale.flatten(1)
    # The quantile of a mixture lies between the smallest and the largest quantile of its components, near their mean.
    quantiles = loc + scale * float(noise.icdf(torch.tensor(tail, dtype=torch.float64)))
    low, high, estimate = quantiles.amin(0), quantiles.amax(0), weighted_mean(quantiles, weights)
    active = torch.arange(estimate.numel(), device=estimate.device)
    for step in range(STEPS + HALVINGS):
        at = estimate[active]
        z = (at - loc) / scale
        below = weighted_mean(noise.cdf(z), weights)
        enough = below >= tail
        low, high = torch.where(enough, low, at), torch.where(enough, at, high)
        better = (low + high) / 2
        settled = high - low <= eps * better.abs()
        if step < STEPS:
            density = weighted_mean(noise.log_prob(z).exp() / scale, weights)
            newton = at - below * (below / tail).log() / density
            still = (newton - at).abs() <= 4 * eps * at.abs()
            settled |= still
            better = torch.where(still | ((newton > low) & (newton < high)), newton, better)
        estimate[active] = better
        left = ~settled
        if not bool(left.any()):
            break
        active, low, high = active[left], low[left], high[left]
        loc, scale = loc[:, left], scale[:, left]
    return side * estimate.view(shape)
