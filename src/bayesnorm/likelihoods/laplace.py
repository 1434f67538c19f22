"""The likelihood of Laplace noise of known scale, which belongs to a mean absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..predictive.noise import LaplaceNoise
from .real_targets import FixedNoiseByScale
from .scales import per_output


@dataclass(frozen=True)
class Laplace(FixedNoiseByScale):
    """p(y) = exp(-|y - f| / scale) / (2 scale), in the targets' own units; its variance is 2 scale^2.

    Heavier tails than a Gaussian's: outliers cost less. The natural choice for networks trained on absolute errors.

    Args:
        scale: Scale of the noise: one positive number, or one per entry of an output axis.
        axis: The axis of outputs (batch, *out) that several scales lie along: the last, or 1 for the channels of maps.
        missing: Whether NaN stands for a missing target, which then counts for nothing.
    """

    scale: float | tuple[float, ...] = 1.0

    family = LaplaceNoise()

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of scales about the mean absolute error, one per output where a row has several."""
        error = per_output(self.errors(f.mean(0), y).abs(), self.axis, self.noise)
        return error * 0.1, error * 10
