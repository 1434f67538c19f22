"""The likelihood with Gaussian noise of fixed precision."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..predictive import GaussianPredictive, NormalNoise
from .real_targets import FixedScale
from .scales import as_numbers, on_outputs, per_output, positive_numbers


@dataclass(frozen=True)
class Gaussian(FixedScale):
    """Regression with constant Gaussian noise: y ~ N(f, 1 / precision), in the targets' units.

    Args:
        precision: Inverse noise *variance* (tau in the papers): one number, or one per entry of an output axis.
            Default: 1, as a plain squared-error loss assumes. For valid intervals, fit it with `calibrate` on
            validation data, or learn it together with the network (`LearnedNoise`).
        axis: The axis of outputs (batch, *out) that several precisions belong to: -1 for the last, 1 for the channels
            of maps (batch, D, h, w). Default: -1.
        missing: Whether NaN marks a missing target. Missing targets do not count. Default: False.
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
        """Return a range of variances around the mean squared error, one per output if there are several.

        The lower end is 1 % of that error, where the ranges of the MCBN paper end. With less noise, CRPS can stay good
        if the samples vary enough, but the mixture has narrow peaks with almost no density between them.
        """
        mse = per_output(self.errors(f.mean(0), y).square(), self.axis, self.noise)
        return mse * 1e-2, mse * 1e2

    def with_noise(self, noise: Tensor) -> Self:
        return dataclasses.replace(self, precision=as_numbers(1 / noise.double()))

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        self._require_moderate(mean)
        noise = on_outputs("precision", self.noise, mean[None], self.axis)
        return GaussianPredictive(mean, variance, noise, self.missing)
