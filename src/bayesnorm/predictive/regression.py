"""The predictive of regression: a mixture with one noise distribution per sample."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from ..arguments import require_number
from ..errors import InputError
from .base import (
    Predictive,
    as_targets,
    choose_samples,
    chosen_rows,
    largest_number,
    mixture_log,
    normalised_weights,
    weighted_mean,
    zero_if_missing,
)
from .noise import NoiseFamily, NormalNoise

# Maximum number of Halley steps. Quantiles that have not converged by then, e.g. between distant samples, are bisected.
STEPS = 12

# Maximum number of bisections of a bracket: enough for single precision, and nearly enough for double precision.
HALVINGS = 60

# A Halley step is the last one if the tail before it has at most this relative error: the next has about its cube.
LAST_STEP = 1e-4

# Quantiles computed together on a CPU, so that all samples stay in the caches.
CPU_BLOCK = 512

# Number of quantiles from which on single precision comes first, and its steps.
LEAST_COLUMNS, SINGLE_STEPS = 64, 2


def tail_quantile(loc: Tensor, scale: Tensor, weights: Tensor, noise: NoiseFamily, tail: float, side: int) -> Tensor:
    """Return the quantile of loc + scale * noise, a mixture over the first axis, with probability `tail` beyond it.

    It works with tail probabilities, because a small number keeps digits that a number near 1 has lost. All noise is
    symmetric, so the upper tail is the lower tail of the mirrored mixture. The logarithm of a tail is nearly linear or
    parabolic, so a few Halley steps are enough.

    Args:
        loc, scale: Location and scale of every sample, (n, *shape).
        weights: Weights of the samples, (n,).
        noise: The family of the noise in standard form.
        tail: Probability of the tail, at most 1/2.
        side: 1 for the lower tail, -1 for the upper tail.
    """
    locs, scales = loc.flatten(1), scale.flatten(1)
    block = CPU_BLOCK if loc.device.type == "cpu" else max(1, locs.shape[1])
    standard = float(noise.icdf(torch.tensor(tail, dtype=torch.float64)))
    quantiles = []
    for part, part_scale in zip(locs.split(block, 1), scales.split(block, 1), strict=True):
        quantiles.append(side * _lower_quantile(side * part, part_scale, weights, noise, tail, standard))
    return torch.cat(quantiles).view(loc.shape[1:])


def _lower_quantile(
    loc: Tensor, scale: Tensor, weights: Tensor, noise: NoiseFamily, tail: float, standard: float
) -> Tensor:
    """Return the quantile with probability `tail` below it for each column of (n, columns).

    Args:
        loc, scale, weights, noise, tail: See `tail_quantile`.
        standard: The quantile of the noise in standard form.
    """
    eps = torch.finfo(loc.dtype).eps
    # The quantile of a mixture lies between the smallest and the largest quantile of its components, near their mean.
    quantiles = loc + scale * standard
    low, high, estimate = quantiles.amin(0), quantiles.amax(0), weighted_mean(quantiles, weights)
    if loc.dtype == torch.float64 and loc.shape[1] >= LEAST_COLUMNS:
        estimate = _single_estimate(estimate, loc, scale, weights, noise, tail).clamp(low, high)
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
            error = (below / tail).log()
            halley = at - _halley_step(error, below, z, scale, weights, noise)
            still = (halley - at).abs() <= 4 * eps * at.abs()
            inside = (halley > low) & (halley < high)
            settled |= still | (inside & (error.abs() <= LAST_STEP))
            better = torch.where(still | inside, halley, better)
        estimate[active] = better
        left = ~settled
        if not bool(left.any()):
            break
        if not bool(left.all()):
            active, low, high = active[left], low[left], high[left]
            loc, scale = loc[:, left], scale[:, left]
    return estimate


def _single_estimate(
    estimate: Tensor, loc: Tensor, scale: Tensor, weights: Tensor, noise: NoiseFamily, tail: float
) -> Tensor:
    """Return quantiles after two Halley steps in single precision, which costs less; not finite if they fail."""
    unit = weighted_mean(scale, weights)
    single_loc, single_scale, single_weights = (
        ((loc - estimate) / unit).float(),
        (scale / unit).float(),
        weights.float(),
    )
    change = torch.zeros_like(single_loc[0])
    for _ in range(SINGLE_STEPS):
        z = (change - single_loc) / single_scale
        below = weighted_mean(noise.cdf(z), single_weights)
        change = change - _halley_step((below / tail).log(), below, z, single_scale, single_weights, noise)
    return torch.where(change.isfinite(), estimate + unit * change, estimate)


def _halley_step(error: Tensor, below: Tensor, z: Tensor, scale: Tensor, weights: Tensor, noise: NoiseFamily) -> Tensor:
    """Return how far a zero of the logarithm of the tail, relative to the wanted one, is below the current point.

    Args:
        error: This logarithm.
        below: The tail.
        z: The point in standard form for each sample, (n, columns).
        scale, weights, noise: See `tail_quantile`.
    """
    densities = noise.log_prob(z).exp() / scale
    density = weighted_mean(densities, weights)
    slope = weighted_mean(densities * noise.log_slope(z) / scale, weights)
    first = density / below
    second = slope / below - first.square()
    return 2 * error * first / (2 * first.square() - error * second)


@dataclass(frozen=True, repr=False)
class RegressionPredictive(Predictive):
    """The predicted distribution of real targets: p(y | x) = sum over samples t of weight_t p(y | f_t(x)).

    Under sample t, y = loc_t + scale_t * noise. With several outputs per example, every method returns one value per
    output (the marginals).

    Args:
        loc: Network outputs of all samples, (n, batch, *out).
        scale: Scale of the noise, broadcast to the shape of `loc`.
        weights: Weights of the samples, (n,). Default: equal weights.
        noise: The family of the noise in standard form. Default: Gaussian.
        missing: Whether NaN marks a missing target, whose log density and CRPS are 0. Default: False, NaN raises an
            error.
    """

    loc: Tensor
    scale: Tensor
    weights: Tensor
    noise: NoiseFamily
    missing: bool

    def __init__(
        self,
        loc: Tensor,
        scale: Tensor,
        weights: Tensor | None = None,
        noise: NoiseFamily | None = None,
        missing: bool = False,
    ) -> None:
        object.__setattr__(self, "loc", loc)
        object.__setattr__(self, "scale", scale.expand_as(loc))
        object.__setattr__(self, "weights", normalised_weights(weights, loc))
        object.__setattr__(self, "noise", noise or NormalNoise())
        object.__setattr__(self, "missing", missing)

    def __getitem__(self, rows: Any) -> Self:
        chosen = chosen_rows(rows, self.loc[0])
        return type(self)(self.loc[:, chosen], self.scale[:, chosen], self.weights, self.noise, self.missing)

    @cached_property
    def mean(self) -> Tensor:
        return weighted_mean(self.loc, self.weights)

    @cached_property
    def epistemic(self) -> Tensor:
        return weighted_mean((self.loc - self.mean).square(), self.weights)

    @cached_property
    def aleatoric(self) -> Tensor:
        return self.noise.variance * weighted_mean(self.scale.square(), self.weights)

    def log_prob(self, y: Any) -> Tensor:
        """Return the log density of the mixture at `y`, in the shape of `mean`."""
        target, present = self.observed(y)
        z = (target - self.loc) / self.scale
        log_prob = mixture_log(self.noise.log_prob(z) - self.scale.log(), self.weights)
        return zero_if_missing(log_prob, present)

    def expected_log_prob(self, y: Any) -> Tensor:
        """Return the mean over samples of the log density at `y`, in the shape of `mean`: the data term of an ELBO."""
        target, present = self.observed(y)
        log_prob = weighted_mean(self.noise.log_prob((target - self.loc) / self.scale) - self.scale.log(), self.weights)
        return zero_if_missing(log_prob, present)

    def cdf(self, y: Any) -> Tensor:
        """Return the probability that a target is at most `y`, in the shape of `mean`."""
        return weighted_mean(self.noise.cdf((self.targets(y) - self.loc) / self.scale), self.weights)

    def quantile(self, level: float) -> Tensor:
        """Return the value that a target is below with probability `level`, in the shape of `mean`."""
        level = require_level(level)
        return self._tail_quantile(level, 1) if level <= 0.5 else self._tail_quantile(1 - level, -1)

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Return (lower, upper), the central interval that contains a target with probability `level`."""
        level = require_level(level)
        lower, upper = (self._tail_quantile((1 - level) / 2, side) for side in (1, -1))
        # Both ends have rounding errors, which may swap them if there is hardly any noise.
        return torch.minimum(lower, upper), torch.maximum(lower, upper)

    def crps(self, y: Any) -> Tensor:
        """Return the continuous ranked probability score (CRPS) of the Gaussian with this mean and variance.

        It is in the targets' units; lower is better. The MCBN paper uses this score. `bayesnorm.metrics.crps` can also
        compute the CRPS of the mixture.
        """
        if math.isinf(self.noise.variance):
            raise InputError(
                f"crps needs a finite variance, but {type(self.noise).__name__} has an infinite one. Use log_prob, or "
                'metrics.crps with form="mixture".'
            )
        target, present = self.observed(y)
        score = gaussian_crps(target, self.mean, self.std)
        return zero_if_missing(score, present)

    def sample(self, n: int, seed: int = 0) -> Tensor:
        chosen, generator = choose_samples(n, self.weights, tuple(self.mean.shape), seed)
        noise = self.noise.sample(tuple(chosen.shape), generator).to(self.loc)
        return self.loc.gather(0, chosen) + self.scale.gather(0, chosen) * noise

    def _tail_quantile(self, tail: float, side: int) -> Tensor:
        """Return the value that a target is below (`side` 1) or above (-1) with probability `tail`."""
        return tail_quantile(self.loc, self.scale, self.weights, self.noise, tail, side)

    def targets(self, y: Any) -> Tensor:
        """Return `y` in the shape, dtype and device of `mean`. A missing last axis of length 1 is added."""
        return like_mean(y, self.mean)

    def observed(self, y: Any) -> tuple[Tensor, Tensor | None]:
        """Return `targets` with missing ones replaced by the mean, and a mask of the others (None: none is missing)."""
        return observed_targets(y, self.mean, self.missing)


def require_level(level: Any) -> float:
    """Return a probability strictly between 0 and 1 as a plain float, or raise an error."""
    number = level.item() if isinstance(level, Tensor) and level.dim() == 0 else level
    requirement = "a probability strictly between 0 and 1"
    return require_number("level", number, above=0, below=1, requirement=requirement, error=InputError)


def observed_targets(y: Any, mean: Tensor, missing: bool) -> tuple[Tensor, Tensor | None]:
    """Return targets in the mean's shape, missing ones replaced by the mean, and a mask of the others (None: all)."""
    target = like_mean(y, mean, missing)
    if not missing:
        return target, None
    present = ~target.isnan()
    return torch.where(present, target, mean), present


def like_mean(y: Any, mean: Tensor, missing: bool = False) -> Tensor:
    """Return targets in the shape of the predictive mean, or raise an error. Nothing is broadcast silently.

    One axis of length 1 may be left out: the last, or the channel axis. NaN raises an error unless it marks a missing
    target.
    """
    target = as_targets(y, mean.device, mean.dtype)
    if target.shape == (*mean.shape, 1):
        target = target.squeeze(-1)
    elif mean.shape[-1] == 1 and target.shape == mean.shape[:-1]:
        target = target.unsqueeze(-1)
    elif mean.dim() > 2 and mean.shape[1] == 1 and target.shape == (mean.shape[0], *mean.shape[2:]):
        target = target.unsqueeze(1)
    if target.shape != mean.shape:
        raise InputError(
            f"y has shape {tuple(target.shape)}, but the predictions have shape {tuple(mean.shape)}. Pass one target "
            "per prediction."
        )
    most = largest_number(target.dtype)
    bad = target.abs() > most if missing else ~(target.abs() <= most)
    if bool(bad.any()):
        if bool(torch.isfinite(target[bad]).any()):
            raise InputError(
                f"y must be at most {most:.0e} in {target.dtype}, but {int(bad.sum())} of {target.numel()} values are "
                f"larger, such as {float(target[bad].nan_to_num().abs().max()):g}."
            )
        raise InputError(
            f"y must be finite, but {int(bad.sum())} of {target.numel()} values are {'' if missing else 'NaN or '}"
            "infinite. Drop those rows. (A likelihood with missing=True ignores NaN in loss, log_prob and crps.)"
        )
    return target


def gaussian_crps(y: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return the CRPS of N(mean, std^2) at y, which is |y - mean| if std is 0.

    It is std [ z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi) ],  z = (y - mean) / std.
    """
    error = (y - mean).abs()
    z = error / std.clamp_min(torch.finfo(std.dtype).tiny)
    two_phi = math.sqrt(2 / math.pi) * torch.exp(-0.5 * z.square())
    return error * torch.erf(z / math.sqrt(2)) + std * (two_phi - 1 / math.sqrt(math.pi))
