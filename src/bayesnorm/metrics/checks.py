"""Check the arguments of scores, and compute scores point by point, in blocks of limited memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..arguments import require_positive
from ..errors import InputError
from ..predictive import ClassificationPredictive, RegressionPredictive, RegressionSummary, as_targets, number_tensor


def check_regression(predictive: Any) -> None:
    """Raise an error unless this is a non-empty regression predictive with finite means and valid noise scales."""
    if not isinstance(predictive, RegressionPredictive):
        raise InputError(
            "predictive must be a RegressionPredictive, the prediction of a posterior with a regression likelihood, "
            f"got a {type(predictive).__name__}."
        )
    if predictive.mean.numel() == 0:
        raise InputError(f"predictive is empty: its outputs have shape {tuple(predictive.mean.shape)}.")
    scale = None if isinstance(predictive, RegressionSummary) else _unexpanded(predictive.scale)
    if scale is not None and not bool((torch.isfinite(scale) & (scale >= 0)).all()):
        raise InputError(
            "predictive must have noise scales that are finite and not negative, got values from "
            f"{float(scale.min())} to {float(scale.max())}."
        )
    check_finite_means(predictive)


def check_finite_means(predictive: Any) -> None:
    """Raise an error if means are NaN or infinite."""
    bad = int((~torch.isfinite(predictive.mean)).sum())
    if bad:
        raise InputError(
            f"predictive has {bad} NaN or infinite means out of {predictive.mean.numel()}. Check the inputs and the "
            "weights of the network."
        )


def regression_targets(predictive: Any, y: Any) -> Tensor:
    """Check the predictive, and return `y` in the shape, dtype and device of its mean."""
    check_regression(predictive)
    return predictive.targets(y)


def scored_targets(predictive: Any, y: Any) -> tuple[Tensor, Tensor | None]:
    """Return `regression_targets` with the mean in place of missing targets, and a mask of the others (None: all)."""
    check_regression(predictive)
    return predictive.observed(y)


def finite_std(predictive: RegressionPredictive) -> Tensor:
    """Return the predictive's standard deviation; raise an error if it is infinite."""
    std = predictive.std
    if not bool(torch.isfinite(std).all()):
        raise InputError(
            f"predictive: the variance of {type(predictive.noise).__name__} is infinite here, so no Gaussian has the "
            'same moments. Use the log likelihood with form="mixture".'
        )
    return std


def check_classification(predictive: Any) -> None:
    """Raise an error unless this is a classification predictive."""
    if not isinstance(predictive, ClassificationPredictive):
        raise InputError(
            "predictive must be a ClassificationPredictive, the prediction of a posterior with a categorical "
            f"likelihood, got a {type(predictive).__name__}."
        )


def classification_targets(predictive: Any, y: Any, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """Return class numbers, ignored ones replaced by 0, and a mask of those to score; both (batch, *pixels)."""
    check_classification(predictive)
    if predictive.log_probs.numel() == 0:
        raise InputError(f"predictive is empty: its outputs have shape {tuple(predictive.log_probs.shape)}.")
    if bool(torch.isnan(predictive.probs).any()):
        raise InputError("predictive has NaN probabilities. Check the inputs and the weights of the network.")
    target = as_targets(y, predictive.probs.device)
    scored = scored_labels(predictive, target, ignore_index)
    target = predictive.targets(torch.where(scored, target, torch.zeros_like(target)))
    if not bool(scored.any()):
        void = predictive.ignore_index if ignore_index is None else ignore_index
        raise InputError(f"y has no label to score: all {target.numel()} labels are ignore_index={void}.")
    return target, scored


def scored_labels(predictive: ClassificationPredictive, target: Tensor, ignore_index: int | None) -> Tensor:
    """Return a mask of the labels that are neither `ignore_index` nor that of the likelihood."""
    scored = torch.ones_like(target, dtype=torch.bool)
    for void in (ignore_index, predictive.ignore_index):
        if void is not None:
            scored &= target != void
    return scored


def number_vector(name: str, values: Any, *, infinite: bool = True) -> Tensor:
    """Return a non-empty 1-D tensor of real numbers in double precision, or raise an error, also for NaN."""
    vector = real_tensor(name, values)
    if vector.dim() != 1 or vector.numel() == 0:
        raise InputError(
            f"{name} must be a 1-D tensor of at least one real number, got shape {tuple(vector.shape)} and "
            f"{vector.dtype}. Use .flatten() for other shapes."
        )
    vector = wide(vector)
    bad = torch.isnan(vector) if infinite else ~torch.isfinite(vector)
    if bool(bad.any()):
        kind = "NaN" if infinite else "NaN or infinite"
        raise InputError(f"{name} has {int(bad.sum())} {kind} values out of {vector.numel()}. Remove those points.")
    return vector


def real_tensor(name: str, values: Any) -> Tensor:
    """Return real numbers as a tensor; Python numbers keep full precision."""
    tensor = number_tensor(name, values)
    if tensor.is_complex():
        raise InputError(f"{name} must hold real numbers, got {tensor.dtype}.")
    return tensor


def number_pair(
    uncertainty: Any, error: Any, names: tuple[str, str] = ("uncertainty", "error")
) -> tuple[Tensor, Tensor]:
    """Return uncertainty and error of the same points (or two other quantities) as 1-D tensors of equal length."""
    first, second = number_vector(names[0], uncertainty), number_vector(names[1], error, infinite=False)
    if first.shape != second.shape:
        words = " and ".join(names)
        raise InputError(f"{words} must have one number each per point, got {len(first)} and {len(second)} numbers.")
    return first, second.to(first.device)


def check_floor(floor: float) -> None:
    """Raise an error if the smallest variance is not positive."""
    requirement = "a small positive variance in squared target units"
    require_positive("floor", floor, requirement=requirement, error=InputError)


def check_form(form: str) -> None:
    """Raise an error unless the form is one of the two that scores of a mixture have."""
    if form not in ("gaussian", "mixture"):
        raise InputError(f'form must be "gaussian" or "mixture", got {form!r}.')


def wide(values: Tensor) -> Tensor:
    """Return values in double precision, or in single precision on devices without it."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def _unexpanded(values: Tensor) -> Tensor:
    """Return the tensor without the repeats that `expand` has made."""
    for axis, stride in enumerate(values.stride()):
        if stride == 0:
            values = values.narrow(axis, 0, 1)
    return values


# Bytes that a score over all samples may use in addition to its arguments, unless one point needs more.
MEMORY = 2**30

# Numbers in one array of a block on a CPU: small enough for the cache.
CACHED_NUMBERS = 2**19

# An upper estimate of how many arrays of a block's size exist at the same time.
ARRAYS = 8


def map_points(
    score: Callable[[Tensor, Tensor, Tensor], Tensor], predictive: RegressionPredictive, y: Tensor
) -> Tensor:
    """Return `score(loc, scale, y)` of all points, in the shape of `y`.

    Args:
        score: A function of `loc` (n, points), `scale` (n, points) or, if all samples share it, (1, points), and `y`
            (points,) that returns (points,). It must treat every point independently.
        predictive: The mixture, `loc` of shape (n, *y.shape).
        y: The targets.
    """
    loc, scale = predictive.loc, predictive.scale
    if scale.stride(0) == 0:
        scale = scale[:1]
    points = MEMORY // (ARRAYS * len(loc) * loc.element_size())  # per block
    if loc.device.type == "cpu":
        points = min(points, CACHED_NUMBERS // len(loc))
    points = max(1, points)
    rows = max(1, points // max(1, y[0].numel()))
    scores = []
    for start in range(0, len(y), rows):
        row = slice(start, start + rows)
        locs, scales, ys = loc[:, row].flatten(1), scale[:, row].flatten(1), y[row].flatten()
        for first in range(0, len(ys), points):
            point = slice(first, first + points)
            scores.append(score(locs[:, point], scales[:, point], ys[point]))
    return torch.cat(scores).view(y.shape)


def mean_over_points(points: Tensor, seen: Tensor | None) -> Tensor:
    """Return the mean of scores over the points whose target is not missing.

    Args:
        points: One score for each target, (batch, *out).
        seen: Which targets are not missing; None for all.
    """
    if seen is None:
        return points.mean()
    count = seen.sum()
    if not bool(count > 0):
        raise InputError("y has no target to score: all are missing.")
    return torch.where(seen, points, 0).sum() / count
