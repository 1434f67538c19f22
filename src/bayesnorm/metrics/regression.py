"""Scores of regression: proper scores, errors of the mean, and calibration of intervals and quantiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import (
    NoiseFamily,
    RegressionPredictive,
    gaussian_crps,
    mixture_log,
    require_level,
    weighted_mean,
    zero_if_missing,
)
from .checks import (
    check_floor,
    check_form,
    check_regression,
    finite_std,
    map_points,
    mean_over_points,
    number_vector,
    scored_targets,
)


def crps(predictive: RegressionPredictive, y: Any, *, form: str = "gaussian") -> Tensor:
    """Return the mean over points of CRPS(F, y) = integral of (F(u) - 1[u >= y])^2 du, F the predictive distribution.

    It is in the target's units; lower is better. It equals |y - mean| where the variance is 0, so it needs no floor.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's units.
        form: "gaussian" (the MCBN paper's form) uses the normal distribution with the mixture's mean and variance;
            "mixture" uses the mixture itself, which costs n (n + 1) / 2 times more for n samples.
    """
    _, seen = scored_targets(predictive, y)
    return mean_over_points(crps_points(predictive, y, form=form), seen)


def crps_points(predictive: RegressionPredictive, y: Any, *, form: str = "gaussian") -> Tensor:
    """Return the CRPS of every target, in the shape of the predictive mean; `crps` is their mean.

    The mixture's closed form is that of Grimit et al. (2006), here for any noise whose distances are known:

        sum_i w_i A(y - mu_i, s_i) - 1/2 sum_ij w_i w_j B(mu_i - mu_j, s_i, s_j),
        A(d, s) = E|d + s noise|,  B(d, s, t) = E|d + s noise - t noise'|.
    """
    check_form(form)
    target, seen = scored_targets(predictive, y)
    if form == "gaussian":
        return zero_if_missing(gaussian_crps(target, predictive.mean, finite_std(predictive)), seen)
    noise, weights = predictive.noise, predictive.weights
    if not hasattr(noise, "distance_of_two"):
        raise InputError(
            f'form="mixture" needs normal, Laplace or Student\'s t noise, but this predictive has '
            f'{type(noise).__name__}. Use form="gaussian".'
        )

    def score(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
        to_target = weighted_mean(noise.distance(y - loc, scale), weights)
        return (to_target - _half_spread(loc, scale, weights, noise)).clamp_min(0)

    return zero_if_missing(map_points(score, predictive, target), seen)


def _half_spread(loc: Tensor, scale: Tensor, weights: Tensor, noise: NoiseFamily) -> Tensor:
    """Return half the mean distance of two samples from the mixture, 1/2 sum_ij w_i w_j B(mu_i - mu_j, s_i, s_j).

    Pairs that are `lag` samples apart are computed together, so no tensor is larger than `loc`.
    """
    shared = len(scale) == 1
    same = noise.distance_of_two(torch.zeros_like(scale), scale, scale) / 2
    total = weighted_mean(same.expand_as(loc), weights.square())
    for lag in range(1, len(loc)):
        first, second = (scale, scale) if shared else (scale[lag:], scale[:-lag])
        distance = noise.distance_of_two(loc[lag:] - loc[:-lag], first, second)
        total = total + weighted_mean(distance, weights[lag:] * weights[:-lag])
    return total


# The smallest variance in a log likelihood, in squared target units. A density is unbounded at variance 0, so a floor
# is needed. For targets of a very different scale, pass another, such as 1e-12 times their variance.
VARIANCE_FLOOR = 1e-12


def pll(predictive: RegressionPredictive, y: Any, *, form: str = "mixture", floor: float = VARIANCE_FLOOR) -> Tensor:
    """Return the predictive log likelihood, the mean over points of log p(y | x).

    It is in nats per target; higher is better. It falls by ln c when targets are multiplied by c.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's units.
        form: "mixture" (the MCBN paper's form) is log sum_t weight_t p(y | f_t); "gaussian" uses the normal
            distribution with the mixture's mean and variance. The two differ where the samples disagree.
        floor: Smallest variance, in squared target units, of the matched Gaussian or of every sample. Smaller noise
            scales are raised to sqrt(floor).
    """
    _, seen = scored_targets(predictive, y)
    return mean_over_points(pll_points(predictive, y, form=form, floor=floor), seen)


def gaussian_pll(predictive: RegressionPredictive, y: Any, *, floor: float = VARIANCE_FLOOR) -> Tensor:
    """Return the `pll` of the matched Gaussian: the mean of log N(y; mean, max(variance, floor)).

    It is in nats per target; higher is better.
    """
    return pll(predictive, y, form="gaussian", floor=floor)


def pll_points(
    predictive: RegressionPredictive, y: Any, *, form: str = "mixture", floor: float = VARIANCE_FLOOR
) -> Tensor:
    """Return the log likelihood of every target, in the shape of the predictive mean; `pll` is their mean."""
    check_form(form)
    check_floor(floor)
    target, seen = scored_targets(predictive, y)
    if form == "gaussian":
        std = finite_std(predictive).clamp_min(math.sqrt(floor))
        return zero_if_missing(gaussian_log_prob(target - predictive.mean, std), seen)

    def score(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
        scale = scale.clamp_min(math.sqrt(floor))
        return mixture_log(predictive.noise.log_prob((y - loc) / scale) - scale.log(), predictive.weights)

    return zero_if_missing(map_points(score, predictive, target), seen)


def gaussian_log_prob(error: Tensor, std: Tensor) -> Tensor:
    """Return the log density of N(0, std^2) at `error`."""
    return -0.5 * (error / std).square() - std.log() - 0.5 * math.log(2 * math.pi)


# The quantiles that `quantile_calibration_error` uses: 1 % to 99 %.
LEVELS = tuple(percent / 100 for percent in range(1, 100))


def rmse(predictive: RegressionPredictive, y: Any) -> Tensor:
    """Return the root mean squared error of the predictive mean, in the target's units; lower is better.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's units.
    """
    target, seen = scored_targets(predictive, y)
    return mean_over_points((target - predictive.mean).square(), seen).sqrt()


def mae(predictive: RegressionPredictive, y: Any) -> Tensor:
    """Return the mean absolute error of the predictive mean, in the target's units; arguments as in `rmse`."""
    target, seen = scored_targets(predictive, y)
    return mean_over_points((target - predictive.mean).abs(), seen)


def pit(predictive: RegressionPredictive, y: Any) -> Tensor:
    """Return the probability integral transform F(y) of every target, in the shape of the predictive mean.

    It is uniform between 0 and 1 if the predictive is calibrated. For a sample without noise, F is 0 below its value,
    1/2 at its value, and 1 above. A missing target is replaced by the mean.
    """
    target, _ = scored_targets(predictive, y)

    def score(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
        z = (y - loc) / scale.clamp_min(torch.finfo(scale.dtype).tiny)
        return weighted_mean(predictive.noise.cdf(z), predictive.weights)

    return map_points(score, predictive, target)


def coverage(predictive: RegressionPredictive, y: Any, level: float = 0.9) -> Tensor:
    """Return the share of targets inside the central interval of probability `level`; closer to `level` is better.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's units.
        level: Probability of the interval, such as 0.9.
    """
    require_level(level)
    _, seen = scored_targets(predictive, y)
    inside = ((pit(predictive, y) - 0.5).abs() <= level / 2).to(predictive.mean.dtype)
    return mean_over_points(inside, seen)


def width(predictive: RegressionPredictive, level: float = 0.9) -> Tensor:
    """Return the mean width of the central interval of probability `level`, in the target's units.

    Lower is better among predictives with the same coverage.
    """
    require_level(level)
    check_regression(predictive)

    def score(loc: Tensor, scale: Tensor, _y: Tensor) -> Tensor:
        floored = scale.clamp_min(torch.finfo(scale.dtype).tiny)
        low, high = RegressionPredictive(loc, floored, predictive.weights, predictive.noise).interval(level)
        return high - low

    return map_points(score, predictive, predictive.mean).mean()


def sharpness(predictive: RegressionPredictive) -> Tensor:
    """Return the square root of the mean total variance, in the target's units.

    Lower is better among predictives that are equally well calibrated.
    """
    check_regression(predictive)
    return finite_std(predictive).square().mean().sqrt()


def quantile_coverage(predictive: RegressionPredictive, y: Any, levels: Sequence[float] | Tensor = LEVELS) -> Tensor:
    """Return the share of targets at or below the predictive quantile of every level, (levels,).

    This is the calibration curve: it equals `levels` if the predictive is calibrated.
    """
    asked = number_vector("levels", levels)
    if not bool(((asked > 0) & (asked < 1)).all()):
        raise InputError(
            "levels must be probabilities strictly between 0 and 1, got values from "
            f"{float(asked.min())} to {float(asked.max())}."
        )
    transformed = pit(predictive, y).detach().flatten().sort().values
    # Levels are compared in the precision of the transform, so that 0.1 is not below 0.1.
    at_or_below = torch.searchsorted(transformed, asked.to(transformed), right=True)
    return at_or_below.to(transformed.dtype) / len(transformed)


def quantile_calibration_error(
    predictive: RegressionPredictive, y: Any, levels: Sequence[float] | Tensor = LEVELS
) -> Tensor:
    """Return the mean over `levels` of |share of targets at or below the predictive quantile - level|.

    It is between 0 and 1 and has no unit; lower is better. Calibrated predictions of N points still score about
    0.3 / sqrt(N).
    """
    shares = quantile_coverage(predictive, y, levels)
    return (shares - number_vector("levels", levels).to(shares)).abs().mean()
