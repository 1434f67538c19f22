"""Scores of regression: errors of the mean, and calibration of intervals and quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import RegressionPredictive, require_level, weighted_mean
from .checks import check_regression, finite_std, map_points, mean_over_points, number_vector, observed_targets

# The quantiles that `quantile_calibration_error` uses: 1 % to 99 %.
LEVELS = tuple(percent / 100 for percent in range(1, 100))


def rmse(predictive: RegressionPredictive, y: Any) -> Tensor:
    """Return the root mean squared error of the predictive mean, in the target's units; lower is better.

    Args:
        predictive: Predictions.
        y: One target per prediction, in the target's units.
    """
    target, seen = observed_targets(predictive, y)
    return mean_over_points((target - predictive.mean).square(), seen).sqrt()


def mae(predictive: RegressionPredictive, y: Any) -> Tensor:
    """Return the mean absolute error of the predictive mean, in the target's units; arguments as in `rmse`."""
    target, seen = observed_targets(predictive, y)
    return mean_over_points((target - predictive.mean).abs(), seen)


def pit(predictive: RegressionPredictive, y: Any) -> Tensor:
    """Return the probability integral transform F(y) of every target, in the shape of the predictive mean.

    It is uniform between 0 and 1 if the predictive is calibrated. For a sample without noise, F is 0 below its value,
    1/2 at its value, and 1 above. A missing target is replaced by the mean.
    """
    target, _ = observed_targets(predictive, y)

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
    _, seen = observed_targets(predictive, y)
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
