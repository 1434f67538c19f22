"""The likelihood of Gaussian noise of known precision."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..predictive import GaussianPredictive
from ..predictive.noise import NormalNoise
from .real_targets import FixedScale
from .scales import as_numbers, on_outputs, per_output, positive_numbers


@dataclass(frozen=True)
class Gaussian(FixedScale):
    """y ~ N(f, 1 / precision), in the targets' own units.

    Args:
        precision: Inverse noise *variance* (the papers' tau): one number, or one per entry of an output axis. The
            default of 1 is what a plain squared-error loss assumes; measure it on validation data for honest intervals,
            or learn it with the network (`LearnedNoise`).
        axis: The axis of outputs (batch, *out) that several precisions lie along: the last, 1 for the channels of
            maps (batch, D, h, w), or 0 for the networks of a stack, outputs (networks, rows, targets).
        missing: Whether NaN stands for a missing target, which then counts for nothing.
    """

    precision: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "precision", positive_numbers("precision", self.precision))

    _name, _power = "precision", -2
    family = NormalNoise()

    @property
    def noise(self) -> Tensor:
        """The variance of the noise."""
        return 1 / torch.tensor(self.precision, dtype=torch.float64)

    def _log_scale(self, noise: Tensor) -> Tensor:
        return 0.5 * noise.log()

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Return a range of variances about the mean squared error, one per output where a row has several.

        It begins at a hundredth of that error, where the MCBN paper's own ranges end: CRPS does not mind less noise if
        the samples alone are wide enough, but then the mixture is a row of spikes, between which the density is nil.
        """
        mse = per_output(self.errors(f.mean(0), y).square(), self.axis, self.noise)
        return mse * 1e-2, mse * 1e2

    def with_noise(self, noise: Tensor) -> Self:
        return dataclasses.replace(self, precision=as_numbers(1 / noise.double()))

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        self._require_moderate(mean)
        noise = on_outputs("precision", self.noise, mean[None], self.axis)
        return GaussianPredictive(mean, variance, noise, self.missing)
