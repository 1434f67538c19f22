"""Predictive log likelihood."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ..predictive import RegressionPredictive, mixture_log, zero_if_missing
from .checks import check_floor, check_form, finite_std, observed_targets
from .points import MEMORY, map_points, mean_over_points

# The smallest variance in a log likelihood, in squared target units. A density is unbounded at variance 0, so a floor
# is needed. For targets of a very different scale, pass another, such as 1e-12 times their variance.
VARIANCE_FLOOR = 1e-12


def pll(
    predictive: RegressionPredictive,
    y: Any,
    *,
    form: str = "mixture",
    floor: float = VARIANCE_FLOOR,
    memory: int = MEMORY,
) -> Tensor:
    """Return the predictive log likelihood, the mean over points of log p(y | x).

    It is in nats per target; higher is better. It falls by ln c when targets are multiplied by c.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's units.
        form: "mixture" (the MCBN paper's form) is log sum_t weight_t p(y | f_t); "gaussian" uses the normal
            distribution with the mixture's mean and variance. The two differ where the samples disagree.
        floor: Smallest variance, in squared target units, of the matched Gaussian or of every sample. Smaller noise
            scales are raised to sqrt(floor).
        memory: Bytes that the mixture form may use in addition to its arguments.
    """
    _, seen = observed_targets(predictive, y)
    return mean_over_points(pll_points(predictive, y, form=form, floor=floor, memory=memory), seen)


def gaussian_pll(predictive: RegressionPredictive, y: Any, *, floor: float = VARIANCE_FLOOR) -> Tensor:
    """Return the `pll` of the matched Gaussian: the mean of log N(y; mean, max(variance, floor)).

    It is in nats per target; higher is better.
    """
    return pll(predictive, y, form="gaussian", floor=floor)


def pll_points(
    predictive: RegressionPredictive,
    y: Any,
    *,
    form: str = "mixture",
    floor: float = VARIANCE_FLOOR,
    memory: int = MEMORY,
) -> Tensor:
    """Return the log likelihood of every target, in the shape of the predictive mean; `pll` is their mean."""
    check_form(form)
    check_floor(floor)
    target, seen = observed_targets(predictive, y)
    if form == "gaussian":
        std = finite_std(predictive).clamp_min(math.sqrt(floor))
        return zero_if_missing(gaussian_log_prob(target - predictive.mean, std), seen)

    def score(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
        scale = scale.clamp_min(math.sqrt(floor))
        return mixture_log(predictive.noise.log_prob((y - loc) / scale) - scale.log(), predictive.weights)

    return zero_if_missing(map_points(score, predictive, target, memory), seen)


def gaussian_log_prob(error: Tensor, std: Tensor) -> Tensor:
    """Return the log density of N(0, std^2) at `error`."""
    return -0.5 * (error / std).square() - std.log() - 0.5 * math.log(2 * math.pi)
