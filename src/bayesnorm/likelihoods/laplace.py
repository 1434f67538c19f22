"""Laplace noise of known scale: the likelihood of a mean absolute error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..predictive import RegressionPredictive
from ..predictive.noise import LaplaceNoise
from ..predictive.regression import like_mean
from .base import Likelihood
from .scales import as_numbers, like_outputs, on_outputs, per_output, positive_numbers


@dataclass(frozen=True)
class Laplace(Likelihood):
    """p(y) = exp(-|y - f| / scale) / (2 scale), in the targets' own units; its variance is 2 scale^2.

    Heavier tails than a Gaussian's: outliers cost less. The natural choice for networks trained on absolute errors.

    Args:
        scale: One positive number, or one per entry of the last output axis.
    """

    scale: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", positive_numbers("scale", self.scale))

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        scale = on_outputs("scale", self.scale, f[None])
        return ((like_outputs(y, f) - f).abs() / scale + (2 * scale).log()).sum() / len(f)

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Scales about the mean absolute error, from a tenth of it on, one per output where a row has several."""
        error = per_output((like_mean(y, f.mean(0)) - f.mean(0)).abs())
        return error * 0.1, error * 10

    def with_noise(self, noise: Tensor) -> Laplace:
        return Laplace(as_numbers(noise))

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        return RegressionPredictive(f, on_outputs("scale", self.scale, f), weights, LaplaceNoise())
