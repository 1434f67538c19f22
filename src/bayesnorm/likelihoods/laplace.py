"""The likelihood with Laplace noise of fixed scale, which corresponds to the mean absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..predictive import LaplaceNoise
from .real_targets import FixedNoiseByScale
from .scales import per_output


@dataclass(frozen=True)
class Laplace(FixedNoiseByScale):
    """Regression with constant Laplace noise: p(y) = exp(-|y - f| / scale) / (2 scale), in the targets' units.

    Its variance is 2 scale^2. Its tails are heavier than a Gaussian's, so outliers affect the loss less. Use it for
    networks trained with absolute errors.

    Args:
        scale: Scale of the noise: one positive number, or one per entry of an output axis. Default: 1.
        axis: The axis of outputs (batch, *out) that several scales belong to: -1 for the last, 1 for the channels of
            maps. Default: -1.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
    """

    scale: float | tuple[float, ...] = 1.0

    family = LaplaceNoise()

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of scales around the mean absolute error, one per output if there are several."""
        error = per_output(self.errors(f.mean(0), y).abs(), self.axis, self.noise)
        return error * 0.1, error * 10
