"""Compute scores of a mixture point by point, in blocks of limited memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import RegressionPredictive

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
