"""The MCBN paper's bounds: between constant uncertainty and the best that anyone could have said of each point."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import RegressionPredictive
from ..predictive.base import at_least_single
from ..predictive.regression import like_mean
from .checks import check_floor, check_regression, observed_targets, real_tensor, wide
from .crps import crps
from .pll import VARIANCE_FLOOR, gaussian_log_prob, pll
from .points import MEMORY, mean_over_points

# CRPS of the best Gaussian at distance 1 from the target, 0.594904.
OPTIMAL_CRPS = math.erf(math.sqrt(math.log(2) / 2))

# Newton steps at most; a dozen are common.
STEPS = 200


def constant_variance(mean: Any, y: Any, *, per_output: bool = False, floor: float = VARIANCE_FLOOR) -> Tensor:
    """Return the one variance that minimises the mean CRPS of N(mean, variance): the constant-uncertainty baseline.

    It is in squared target units. Give it validation data; the paper's CUBN and CUDO are this with a network's MC mean.
    The mean CRPS is convex in the standard deviation s, and its minimum solves

        mean of exp(-(y - mean)^2 / (2 s^2)) = 1 / sqrt(2),

    whose left side is convex in 1 / s^2, so that Newton's steps from s^2 = mean squared error / ln 2 reach the
    root from one side. There is no randomness, and no range to give.

    Args:
        mean: Predictions, (batch, *out).
        y: One target per prediction.
        per_output: Whether to return one variance for every output, shape (*out), rather than one for all of them.
        floor: The least variance that is returned. The minimum is at 0 when 71 % of the errors are exactly 0.
    """
    check_floor(floor)
    given = real_tensor("mean", mean)
    given = at_least_single(given) if given.is_floating_point() else given.to(torch.get_default_dtype())
    if given.numel() == 0 or given.dim() == 0 or not bool(torch.isfinite(given).all()):
        raise InputError(f"mean: has shape {tuple(given.shape)}; one finite prediction or more would work.")
    square = wide(like_mean(y, given).detach() - given.detach()).square()
    square = square.flatten(1) if per_output and given.dim() > 1 else square.reshape(-1, 1)
    # Everything from here on is relative to the mean squared error, so that no unit is too small or too large.
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
    variance = torch.where(size > floor * rate, size / rate, torch.full_like(size, floor)).to(given.dtype)
    return variance.view(given.shape[1:]) if per_output else variance[0]


def constant_uncertainty(predictive: RegressionPredictive, variance: float | Tensor) -> RegressionPredictive:
    """Return the same means with Gaussian noise of that one variance: all that a network without uncertainty could say.

    Args:
        predictive: Predictions whose mean is kept.
        variance: Variance of the noise in squared target units; one number, or one per output.
    """
    check_regression(predictive)
    mean = predictive.mean
    value = real_tensor("variance", variance).to(mean)
    if not bool((torch.isfinite(value) & (value >= 0)).all()):
        raise InputError(f"variance must be finite numbers that are not negative, got {variance}.")
    try:
        scale = value.sqrt().expand_as(mean)
    except RuntimeError as error:
        raise InputError(
            f"variance: has shape {tuple(value.shape)}, but the predictions have {tuple(mean.shape)}; one number, or "
            "one per entry of the last axis, would work."
        ) from error
    return RegressionPredictive(mean[None], scale[None], missing=predictive.missing)


def optimal_crps(error: Any) -> Tensor:
    """Return the least CRPS of a Gaussian with this error: |error| erf(sqrt(ln 2 / 2)), at std |error| / sqrt(ln 2).

    There is one number per point, in the target's units; 0 at error 0.
    """
    return OPTIMAL_CRPS * _errors(error).abs()


def optimal_pll(error: Any, *, floor: float = VARIANCE_FLOOR) -> Tensor:
    """Return the greatest log likelihood of a Gaussian with this error and a variance of at least `floor`.

    It is log N(error; 0, max(error^2, floor)), one number per point, in nats; without a floor it would be unbounded
    at error 0.
    """
    check_floor(floor)
    error = _errors(error)
    return gaussian_log_prob(error, error.abs().clamp_min(math.sqrt(floor)))


def normalised_crps(
    predictive: RegressionPredictive,
    y: Any,
    constant_variance: float | Tensor,
    *,
    form: str = "gaussian",
    memory: int = MEMORY,
    each: int = 0,
) -> Tensor:
    """Return 100 (CRPS - CRPS_constant) / (CRPS_optimal - CRPS_constant), every CRPS a mean over the test set.

    It is in percent: 0 is constant uncertainty with the same means, 100 the optimum of each point; below 0 is worse
    than constant uncertainty. Higher is better.

    Args:
        predictive: Predictions on test data.
        y: Test targets.
        constant_variance: What `constant_variance` found on validation data; (networks, 1, 1) for one of each network.
        form: Which CRPS is meant, as in `crps`.
        memory: Bytes that the mixture form may use, as in `crps`.
        each: Leading axes that keep a score of their own, as in `crps`.
    """
    target, seen = observed_targets(predictive, y)
    constant = crps(constant_uncertainty(predictive, constant_variance), y, each=each)
    optimum = mean_over_points(optimal_crps(target - predictive.mean), seen, each)
    return _percent(crps(predictive, y, form=form, memory=memory, each=each), constant, optimum)


def normalised_pll(
    predictive: RegressionPredictive,
    y: Any,
    constant_variance: float | Tensor,
    *,
    form: str = "mixture",
    floor: float = VARIANCE_FLOOR,
    memory: int = MEMORY,
    each: int = 0,
) -> Tensor:
    """Return 100 (PLL - PLL_constant) / (PLL_optimal - PLL_constant), every PLL a mean over the test set.

    It is in percent, as `normalised_crps`; higher is better. The optimum is a Gaussian's about the same mean, so the
    mixture (the paper's form) can in principle pass 100. All three terms share one `floor`.
    """
    target, seen = observed_targets(predictive, y)
    constant = pll(constant_uncertainty(predictive, constant_variance), y, form="gaussian", floor=floor, each=each)
    optimum = mean_over_points(optimal_pll(target - predictive.mean, floor=floor), seen, each)
    return _percent(pll(predictive, y, form=form, floor=floor, memory=memory, each=each), constant, optimum)


def _percent(score: Tensor, constant: Tensor, optimal: Tensor) -> Tensor:
    room = optimal - constant
    rounding = 8 * torch.finfo(room.dtype).eps * torch.maximum(optimal.abs(), constant.abs())
    if bool((room.abs() <= rounding).any()):
        raise InputError(
            f"y: constant uncertainty already scores the optimum ({constant.tolist()}) on these targets, which leaves "
            "nothing to normalise by; several points with different errors would work."
        )
    return 100 * (score - constant) / room


def _errors(error: Any) -> Tensor:
    values = real_tensor("error", error)
    values = values if values.is_floating_point() else values.to(torch.get_default_dtype())
    if not bool(torch.isfinite(values).all()):
        raise InputError(f"error: holds {int((~torch.isfinite(values)).sum())} NaN or infinite values; drop them.")
    return values
