"""Continuous ranked probability score."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import RegressionPredictive
from ..predictive.base import weighted_mean
from ..predictive.noise import NormalNoise
from ..predictive.regression import gaussian_crps
from .arguments import check_form, finite_std, regression_targets
from .points import MEMORY, map_points


def crps(predictive: RegressionPredictive, y: Any, *, form: str = "gaussian", memory: int = MEMORY) -> Tensor:
    """Mean over the points of CRPS(F, y) = integral of (F(u) - 1[u >= y])^2 du, F the predictive distribution.

    In the target's units; it is |y - mean| where the variance is 0, so no floor is needed. Lower is better.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's own units.
        form: "gaussian" (the MCBN paper's) takes F as the normal distribution with the mixture's mean and variance;
            "mixture" takes the mixture itself and wants normal noise. n draws cost n (n + 1) / 2 times more.
        memory: Bytes that the mixture form may use on top of its arguments.
    """
    return crps_points(predictive, y, form=form, memory=memory).mean()


def crps_points(predictive: RegressionPredictive, y: Any, *, form: str = "gaussian", memory: int = MEMORY) -> Tensor:
    """CRPS of every target, in the shape of the predictive mean; `crps` is their mean.

    The mixture's closed form is that of Grimit et al. (2006):

        sum_i w_i A(y - mu_i, s_i^2) - 1/2 sum_ij w_i w_j A(mu_i - mu_j, s_i^2 + s_j^2),
        A(m, s^2) = m (2 Phi(m / s) - 1) + 2 s phi(m / s).
    """
    check_form(form)
    target = regression_targets(predictive, y)
    if form == "gaussian":
        return gaussian_crps(target, predictive.mean, finite_std(predictive))
    if not isinstance(predictive.noise, NormalNoise):
        raise InputError(
            f'form: "mixture" was given, but it has a closed form for normal noise only and this predictive has '
            f'{type(predictive.noise).__name__}; "gaussian" would work.'
        )
    weights = predictive.weights

    def score(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
        to_target = weighted_mean(_mean_distance(y - loc, scale), weights)
        return (to_target - _half_spread(loc, scale, weights)).clamp_min(0)

    return map_points(score, predictive, target, memory)


def _half_spread(loc: Tensor, scale: Tensor, weights: Tensor) -> Tensor:
    """Half the mean distance of two draws from the mixture: 1/2 sum_ij w_i w_j A(mu_i - mu_j, s_i^2 + s_j^2).

    Pairs are taken once, `lag` rows apart, so that nothing larger than `loc` is ever made.
    """
    shared = len(scale) == 1
    total = weighted_mean(scale.expand_as(loc), weights.square()) / math.sqrt(math.pi)  # i = j: A(0, 2 s^2) / 2
    both = math.sqrt(2) * scale
    for lag in range(1, len(loc)):
        if not shared:
            both = torch.hypot(scale[lag:], scale[:-lag])
        distance = _mean_distance(loc[lag:] - loc[:-lag], both)
        total = total + weighted_mean(distance, weights[lag:] * weights[:-lag])
    return total


def _mean_distance(difference: Tensor, std: Tensor) -> Tensor:
    """E|difference + std * noise|, the A of Grimit et al.; |difference| where std is 0."""
    z = difference * (math.sqrt(0.5) / std.clamp_min(torch.finfo(std.dtype).tiny))
    return difference * torch.erf(z) + math.sqrt(2 / math.pi) * std * torch.exp(-z.square())
