"""Compute the statistics that a batch-norm layer normalises by, so that its input is like that of training.

The same function runs while a network adapts layer by layer and inside exported files that watch their inputs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class LayerTarget(NamedTuple):
    """What the input of one layer is compared with; coordinates are the means and log(variance + eps), (2, C), double.

    Args:
        center: The running statistics that are moved.
        expected: The statistics that are expected.
        noise: The variance of the shift by chance.
        earlier: The shift of earlier examples.
        weight: The share of earlier examples among all, ().
        strength: The share of the shift that is applied, (); below 0, it is estimated.
    """

    center: Tensor
    expected: Tensor
    noise: Tensor
    earlier: Tensor
    weight: Tensor
    strength: Tensor


def moved_statistics(
    mean: Tensor, var: Tensor, eps: float, target: LayerTarget
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the mean and variance to normalise by, the shift (2, C), and its strength (2,); all double.

    With strength 0 these are the running statistics; with strength 1, and the running statistics as expected ones,
    those of the input, as in training.

    Args:
        mean: The mean of the layer's input, (C,).
        var: Its biased variance, (C,).
        eps: The layer's eps.
        target: What it is compared with.
    """
    observed = torch.stack([mean.double(), (var.double() + eps).log()])
    shift = (1 - target.weight) * (observed - target.expected) + target.weight * target.earlier
    distance = (shift.square() / target.noise).mean(1)
    strength = torch.where(target.strength < 0, 1 - 1 / distance.clamp(min=1.0), target.strength)
    by_mean, by_log_var = strength[:, None] * shift
    factor = (0.5 * by_log_var).exp()
    new_mean = target.expected[0] + by_mean + factor * (target.center[0] - target.expected[0])
    new_var = (target.center[1].exp() * factor.square() - eps).clamp(min=0.0)
    return new_mean, new_var, shift, strength
