"""Scores of a mixture, point by point, in blocks that fit into a bounded memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import RegressionPredictive

# Bytes that a score over all samples may use on top of its arguments.
MEMORY = 2**30

# Numbers in one array of a block on a CPU: small enough to stay in its cache.
CACHED_NUMBERS = 2**19

# Arrays of a block's size that are alive at once, generously counted.
ARRAYS = 8


def map_points(
    score: Callable[[Tensor, Tensor, Tensor], Tensor], predictive: RegressionPredictive, y: Tensor, memory: int
) -> Tensor:
    """Return `score(loc, scale, y)` of all points, in the shape of `y`.

    Args:
        score: Takes `loc` (n, points), `scale` (n, points), or (1, points) where all samples share it, and `y`
            (points,); gives (points,). It must treat every point by itself.
        predictive: The mixture, `loc` of shape (n, *y.shape).
        y: The targets.
        memory: Bytes to stay within.
    """
    loc, scale = predictive.loc, predictive.scale
    if scale.stride(0) == 0:
        scale = scale[:1]
    points = points_per_block(loc, memory)
    rows = max(1, points // max(1, y[0].numel()))
    scores = []
    for start in range(0, len(y), rows):
        row = slice(start, start + rows)
        locs, scales, ys = loc[:, row].flatten(1), scale[:, row].flatten(1), y[row].flatten()
        for first in range(0, len(ys), points):
            point = slice(first, first + points)
            scores.append(score(locs[:, point], scales[:, point], ys[point]))
    return torch.cat(scores).view(y.shape)


def mean_over_points(points: Tensor, seen: Tensor | None, each: int = 0) -> Tensor:
    """Average scores over the points whose target is there.

    Args:
        points: One score for each target, (batch, *out), or (networks, rows, *out) for stacked networks.
        seen: Which targets are there; None for all of them.
        each: How many leading axes keep a score of their own: 0 gives one number, 1 one for each stacked network.
    """
    if seen is None and not each:
        return points.mean()
    if not 0 <= each < points.dim():
        raise InputError(f"each: {each} was given for scores of shape {tuple(points.shape)}; 0 or 1 would work.")
    flat = points.flatten(each)
    if seen is None:
        return flat.mean(-1)
    there = seen.flatten(each)
    count = there.sum(-1)
    if not bool((count > 0).all()):
        raise InputError("y: all targets are missing; at least one that is not would work.")
    return torch.where(there, flat, 0).sum(-1) / count


def points_per_block(loc: Tensor, memory: int) -> int:
    """Return how many points' samples one block may hold."""
    bytes_per_point = ARRAYS * len(loc) * loc.element_size()
    if memory < bytes_per_point:
        raise InputError(
            f"memory: {memory} bytes were given, but one point with {len(loc)} samples takes {bytes_per_point}; "
            f"{MEMORY} would work."
        )
    points = memory // bytes_per_point
    if loc.device.type == "cpu":
        points = min(points, max(1, CACHED_NUMBERS // len(loc)))
    return points
