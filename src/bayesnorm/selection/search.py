"""Minimise several functions of positive numbers at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

GOLDEN = (math.sqrt(5) - 1) / 2


def minimise_on_log_scale(
    objective: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, grid: int = 25, refinements: int = 30
) -> tuple[Tensor, Tensor]:
    """Return where in [low, high] each of several functions is smallest, and its value there.

    It searches a grid, and then refines by golden sections.

    Args:
        objective: Returns the values of the functions at one positive number each; both have the shape of `low`.
        low: Lower ends, positive.
        high: Upper ends.
        grid: Number of grid points, evenly spaced in the logarithm.
        refinements: Number of golden-section steps around the best grid point.
    """
    low, high = low.double().log(), high.double().log()
    points = torch.linspace(0, 1, grid, dtype=torch.float64, device=low.device)
    looks = torch.stack([objective((low + p * (high - low)).exp()).double() for p in points])
    looks = torch.where(torch.isfinite(looks), looks, torch.inf)
    best = looks.argmin(0)
    step = (high - low) / (grid - 1)
    left, right = torch.maximum(low + (best - 1) * step, low), torch.minimum(low + (best + 1) * step, high)
    value, where = looks.amin(0), low + best * step
    a, b = right - GOLDEN * (right - left), left + GOLDEN * (right - left)
    at_a, at_b = objective(a.exp()).double(), objective(b.exp()).double()
    for _ in range(refinements):
        lower = at_a < at_b
        left, right = torch.where(lower, left, a), torch.where(lower, b, right)
        new = torch.where(lower, right - GOLDEN * (right - left), left + GOLDEN * (right - left))
        at_new = objective(new.exp()).double()
        a, b = torch.where(lower, new, b), torch.where(lower, a, new)
        at_a, at_b = torch.where(lower, at_new, at_b), torch.where(lower, at_a, at_new)
        better = at_new < value
        value, where = torch.where(better, at_new, value), torch.where(better, new, where)
    return where.exp(), value
