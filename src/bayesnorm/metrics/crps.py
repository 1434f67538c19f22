"""Continuous ranked probability score."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import NoiseFamily, RegressionPredictive, gaussian_crps, weighted_mean, zero_if_missing
from .checks import check_form, finite_std, observed_targets
from .points import MEMORY, map_points, mean_over_points


def crps(predictive: RegressionPredictive, y: Any, *, form: str = "gaussian", memory: int = MEMORY) -> Tensor:
    """Return the mean over points of CRPS(F, y) = integral of (F(u) - 1[u >= y])^2 du, F the predictive distribution.

    It is in the target's units; lower is better. It equals |y - mean| where the variance is 0, so it needs no floor.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's units.
        form: "gaussian" (the MCBN paper's form) uses the normal distribution with the mixture's mean and variance;
            "mixture" uses the mixture itself, which costs n (n + 1) / 2 times more for n samples.
        memory: Bytes that the mixture form may use in addition to its arguments.
    """
    _, seen = observed_targets(predictive, y)
    return mean_over_points(crps_points(predictive, y, form=form, memory=memory), seen)


def crps_points(predictive: RegressionPredictive, y: Any, *, form: str = "gaussian", memory: int = MEMORY) -> Tensor:
    """Return the CRPS of every target, in the shape of the predictive mean; `crps` is their mean.

    The mixture's closed form is that of Grimit et al. (2006), here for any noise whose distances are known:

        sum_i w_i A(y - mu_i, s_i) - 1/2 sum_ij w_i w_j B(mu_i - mu_j, s_i, s_j),
        A(d, s) = E|d + s noise|,  B(d, s, t) = E|d + s noise - t noise'|.
    """
    check_form(form)
    target, seen = observed_targets(predictive, y)
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

    return zero_if_missing(map_points(score, predictive, target, memory), seen)


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
