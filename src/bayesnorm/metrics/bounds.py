"""Normalised scores of the MCBN paper: 0 % is one constant variance, 100 % the optimal variance for every point."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import RegressionPredictive, at_least_single, like_mean
from .checks import check_floor, check_regression, mean_over_points, real_tensor, scored_targets, wide
from .regression import VARIANCE_FLOOR, crps, gaussian_log_prob, pll

# CRPS of the best Gaussian whose mean is at distance 1 from the target, 0.594904.
OPTIMAL_CRPS = math.erf(math.sqrt(math.log(2) / 2))

# The largest number of Newton steps; about twelve are usual.
STEPS = 200


def constant_variance(mean: Any, y: Any, *, per_output: bool = False, floor: float = VARIANCE_FLOOR) -> Tensor:
    """Return the one variance that minimises the mean CRPS of N(mean, variance): the constant-uncertainty baseline.

    It is in squared target units. Pass validation data. With a network's Monte Carlo mean, this is the paper's CUBN or
    CUDO. The mean CRPS is convex in the standard deviation s, and its minimum solves

        mean of exp(-(y - mean)^2 / (2 s^2)) = 1 / sqrt(2).

    The left side is convex in 1 / s^2, so Newton steps from s^2 = mean squared error / ln 2 reach the root from one
    side. The result is deterministic.

    Args:
        mean: Predictions, (batch, *out).
        y: One target per prediction.
        per_output: Whether to return one variance for every output, shape (*out), instead of one for all.
        floor: The smallest variance returned. The minimum is at 0 if at least 71 % of the errors are exactly 0.
    """
    check_floor(floor)
    means = at_least_single(_floats("mean", mean))
    if means.numel() == 0 or means.dim() == 0 or not bool(torch.isfinite(means).all()):
        raise InputError(f"mean must hold at least one prediction, all finite, got shape {tuple(means.shape)}.")
    square = wide(like_mean(y, means).detach() - means.detach()).square()
    square = square.flatten(1) if per_output and means.dim() > 1 else square.reshape(-1, 1)
    # From here on relative to the mean squared error, so that targets of any scale work.
    size = square.mean(0)
    relative = square / size.clamp_min(torch.finfo(size.dtype).tiny)
    rate = torch.full_like(size, math.log(2))
    most = size / floor
    for _ in range(STEPS):
        near = torch.exp(-0.5 * rate * relative)
        step = (near.mean(0) - math.sqrt(0.5)) / (0.5 * relative * near).mean(0)
        changed = torch.minimum(rate + torch.nan_to_num(step), most)
        done = bool(((changed - rate).abs() <= 1e-14 * rate).all())
        rate = changed
        if done:
            break
    variance = torch.where(size > floor * rate, size / rate, torch.full_like(size, floor)).to(means.dtype)
    return variance.view(means.shape[1:]) if per_output else variance[0]


def constant_uncertainty(predictive: RegressionPredictive, variance: float | Tensor) -> RegressionPredictive:
    """Return a predictive with the same means and Gaussian noise of one constant variance, as a baseline.

    Args:
        predictive: Predictions whose means are used.
        variance: Variance of the noise in squared target units; one number, or one per output.
    """
    check_regression(predictive)
    mean = predictive.mean
    value = real_tensor("variance", variance).to(mean)
    if not bool((torch.isfinite(value) & (value >= 0)).all()):
        raise InputError(f"variance must be finite and not negative, got {variance}.")
    try:
        scale = value.sqrt().expand_as(mean)
    except RuntimeError as error:
        raise InputError(
            f"variance has shape {tuple(value.shape)}, but the predictions have shape {tuple(mean.shape)}. Pass one "
            "number, or one per entry of the last axis."
        ) from error
    return RegressionPredictive(mean[None], scale[None], missing=predictive.missing)


def optimal_crps(error: Any) -> Tensor:
    """Return the smallest CRPS that a Gaussian with this error can have, one number per point, in the target's units.

    It is |error| erf(sqrt(ln 2 / 2)), at standard deviation |error| / sqrt(ln 2); 0 if the error is 0.
    """
    return OPTIMAL_CRPS * _errors(error).abs()


def optimal_pll(error: Any, *, floor: float = VARIANCE_FLOOR) -> Tensor:
    """Return the largest log likelihood of a Gaussian with this error and a variance of at least `floor`.

    It is log N(error; 0, max(error^2, floor)), one number per point, in nats. Without a floor it is unbounded at
    error 0.
    """
    check_floor(floor)
    error = _errors(error)
    return gaussian_log_prob(error, error.abs().clamp_min(math.sqrt(floor)))


def normalised_crps(
    predictive: RegressionPredictive, y: Any, constant_variance: float | Tensor, *, form: str = "gaussian"
) -> Tensor:
    """Return 100 (CRPS - CRPS_constant) / (CRPS_optimal - CRPS_constant), every CRPS a mean over the test set.

    It is in percent; higher is better. With the same means, 0 is one constant variance, and 100 the optimal variance
    for every point. Below 0 is worse than one constant variance.

    Args:
        predictive: Predictions on test data.
        y: Test targets.
        constant_variance: The result of `constant_variance` on validation data; (networks, 1, 1) for one per network.
        form: "gaussian" or "mixture", as in `crps`.
    """
    target, seen = scored_targets(predictive, y)
    constant = crps(constant_uncertainty(predictive, constant_variance), y)
    optimum = mean_over_points(optimal_crps(target - predictive.mean), seen)
    return _percent(crps(predictive, y, form=form), constant, optimum)


def normalised_pll(
    predictive: RegressionPredictive,
    y: Any,
    constant_variance: float | Tensor,
    *,
    form: str = "mixture",
    floor: float = VARIANCE_FLOOR,
) -> Tensor:
    """Return 100 (PLL - PLL_constant) / (PLL_optimal - PLL_constant), every PLL a mean over the test set.

    PLL is the predictive log likelihood. The result is in percent, as in `normalised_crps`; higher is better. The
    optimum is that of a Gaussian with the same mean, so the mixture (the paper's form) can exceed 100. All three terms
    use the same `floor`.
    """
    target, seen = scored_targets(predictive, y)
    constant = pll(constant_uncertainty(predictive, constant_variance), y, form="gaussian", floor=floor)
    optimum = mean_over_points(optimal_pll(target - predictive.mean, floor=floor), seen)
    return _percent(pll(predictive, y, form=form, floor=floor), constant, optimum)


def _percent(score: Tensor, constant: Tensor, optimal: Tensor) -> Tensor:
    room = optimal - constant
    rounding = 8 * torch.finfo(room.dtype).eps * torch.maximum(optimal.abs(), constant.abs())
    if bool((room.abs() <= rounding).any()):
        raise InputError(
            f"y: one constant variance already scores the optimum ({constant.tolist()}) on these targets, so the score "
            "cannot be normalised. Use several points with different errors."
        )
    return 100 * (score - constant) / room


def _floats(name: str, values: Any) -> Tensor:
    """Return real numbers as a tensor of floats."""
    tensor = real_tensor(name, values)
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def _errors(error: Any) -> Tensor:
    values = _floats("error", error)
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"error has {int((~torch.isfinite(values)).sum())} NaN or infinite values. Remove them.")
    return values
