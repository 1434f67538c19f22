"""Gaussian noise of known precision."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..predictive import GaussianPredictive, RegressionPredictive
from ..predictive.regression import like_mean
from .base import Likelihood
from .scales import as_numbers, like_outputs, on_outputs, per_output, positive_numbers


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """y ~ N(f, 1 / precision), in the targets' own units.

    Args:
        precision: Inverse noise *variance* (the papers' tau): one number, or one per entry of the last output
            axis. The default of 1 is what a plain squared-error loss assumes; measure it on validation data for
            honest intervals.
    """

    precision: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "precision", positive_numbers("precision", self.precision))

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        precision = self._precision(f[None])
        squares = precision * (like_outputs(y, f) - f).square()
        return 0.5 * (squares - precision.log() + math.log(2 * math.pi)).sum() / len(f)

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Variances about the mean squared error, one per output where a row has several.

        From a hundredth of it on, where the MCBN paper's own ranges end: CRPS does not mind if the draws alone are wide
        enough, but a mixture with hardly any noise is a row of spikes, between which the density is nil.
        """
        mse = per_output((like_mean(y, f.mean(0)) - f.mean(0)).square())
        return mse * 1e-2, mse * 1e2

    def with_noise(self, noise: Tensor) -> Gaussian:
        return Gaussian(as_numbers(1 / noise.double()))

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        return RegressionPredictive(f, self._precision(f).rsqrt(), weights)

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        return GaussianPredictive(mean, variance, 1 / self._precision(mean[None]))

    def _precision(self, f: Tensor) -> Tensor:
        return on_outputs("precision", self.precision, f)
