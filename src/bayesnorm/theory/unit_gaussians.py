"""The distribution q of the MCBN paper's appendix 1.3: Gaussians over a unit's batch statistics (Teye et al. 2018).

A unit with pre-activation mean mu, variance s^2 and fourth central moment m4 has, for batch size M and by the central
limit theorem,

    mean_B ~ N(mu, s^2 / M),     std_B ~ N(s, (m4 - s^4) / (4 s^2 M)).

For a convolution, the M images of a batch are independent, but their pixels are not. So s^2 and m4 - s^4 are replaced
by the variances of the per-image averages of h and of (h - mu)^2, as in `GaussianBN`.

Notes:
- A unit that does not vary (a dead one, or batches of two examples, where m4 = s^4) would make q a point and its
  divergence from any prior infinite. So s^2 is raised to at least `VARIANCE_FLOOR`, and both variances of q, times M,
  to at least `RELATIVE_FLOOR` of s^2. For a unit below the first floor, only the mean has a gradient.
- The variances of q are for independent examples. Batches without replacement from N examples have (N - M) / (N - 1)
  of them; as in the paper, this factor is left out.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from ..arguments import require_positive, require_seed
from ..errors import BayesNormError
from ..network import BatchNormLayer, Executable, LayerChoice, TrainData, collect_moments, mini_batches

# The smallest variance of a unit.
VARIANCE_FLOOR = 1e-12

# The smallest M * (variance of q), for means and standard deviations, as a share of the unit's variance.
RELATIVE_FLOOR = 1e-6

# Number of batches taken from training data that can only be streamed.
STREAM_BATCHES = 256


@dataclass(frozen=True, eq=False)
class UnitGaussians:
    """The distribution q: independent Gaussians over the batch mean and the batch standard deviation of C units.

    It can also hold moments of real batches: the mean and variance over batches of their means and standard deviations.

    Args:
        layers: The layers that the units belong to, in running order.
        mean_loc: Expected batch means, (C,).
        mean_var: Variances of batch means, (C,).
        std_loc: Expected batch standard deviations, (C,).
        std_var: Variances of batch standard deviations, (C,).
        batch_size: The batch size M of these variances; any positive number.
    """

    layers: tuple[BatchNormLayer, ...] = dataclasses.field(repr=False)
    mean_loc: Tensor = dataclasses.field(repr=False)
    mean_var: Tensor = dataclasses.field(repr=False)
    std_loc: Tensor = dataclasses.field(repr=False)
    std_var: Tensor = dataclasses.field(repr=False)
    batch_size: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", require_positive("batch_size", self.batch_size))
        units = sum(layer.channels for layer in self.layers)
        for name in ("mean_loc", "mean_var", "std_loc", "std_var"):
            shape = tuple(getattr(self, name).shape)
            if shape != (units,):
                raise BayesNormError(f"{name} must have shape ({units},) for layers of {units} units, got {shape}.")

    def at_batch_size(self, batch_size: float) -> Self:
        """Return q for another batch size M, whole or not. Both variances scale as 1 / M, so no data are needed."""
        batch_size = require_positive("batch_size", batch_size)
        scale = self.batch_size / batch_size
        return dataclasses.replace(
            self, mean_var=scale * self.mean_var, std_var=scale * self.std_var, batch_size=batch_size
        )

    def floored(self) -> Self:
        """Return q with floors for units that do not vary, so that every divergence is finite; see the module."""
        std = self.std_loc.clamp_min(math.sqrt(VARIANCE_FLOOR))
        least = RELATIVE_FLOOR / self.batch_size * std.square()
        return dataclasses.replace(
            self,
            mean_var=torch.maximum(self.mean_var, least),
            std_loc=std,
            std_var=torch.maximum(self.std_var, least),
        )


def unit_gaussians(
    model: nn.Module,
    train_data: TrainData,
    batch_size: int | None = None,
    *,
    layers: LayerChoice = None,
    seed: int = 0,
) -> UnitGaussians:
    """Return q of a network from one pass over its training data; `at_batch_size` gives it for any other M.

    Args:
        model: The network; never modified.
        train_data: The data that it was trained on, in any form that a method's `fit` takes.
        batch_size: The batch size M, also used in the pass; the moments of later layers depend on it. None uses that
            of a `DataLoader`.
        layers: Which batch-norm layers: names, a predicate, the last k in running order, or None for all.
        seed: Seed for assigning examples to batches.
    """
    batches = mini_batches(train_data, batch_size, STREAM_BATCHES, require_seed(seed), Executable(model).form)
    moments = collect_moments(model, batches, layers)
    statistics = moments.statistics
    return central_limit(
        statistics.layers,
        statistics.mean[0].double(),
        statistics.var[0].double(),
        moments.mean_std.double().square(),
        moments.square_std.double().square(),
        statistics.batch_size,
    )


def central_limit(
    layers: tuple[BatchNormLayer, ...],
    mean: Tensor,
    var: Tensor,
    mean_var: Tensor,
    square_var: Tensor,
    batch_size: float,
) -> UnitGaussians:
    """Return q from the units' means and variances, and the variances over examples of h and of (h - mean)^2."""
    alive = var > VARIANCE_FLOOR  # higher moments of the other units are rounding errors
    mean_var, square_var = torch.where(alive, mean_var, 0), torch.where(alive, square_var, 0)
    var = var.clamp_min(VARIANCE_FLOOR)  # before the root, whose gradient at 0 is infinite
    std_var = square_var / (4 * var)
    q = UnitGaussians(layers, mean, mean_var / batch_size, var.sqrt(), std_var / batch_size, float(batch_size))
    return q.floored()
