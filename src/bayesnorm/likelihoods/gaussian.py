"""Gaussian noise of known precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import BayesNormError, InputError
from ..predictive import GaussianPredictive, RegressionPredictive
from ..predictive.regression import like_mean
from .base import Likelihood


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
        given: Any = self.precision
        several = isinstance(given, Sequence) or (isinstance(given, Tensor) and given.dim() > 0)
        values = tuple(given) if several else (given,)
        try:
            numbers = tuple(float(value) for value in values)
        except (TypeError, ValueError) as error:
            raise BayesNormError(f"precision: {given!r} was given; positive numbers would work.") from error
        if not numbers or not all(math.isfinite(value) and value > 0 for value in numbers):
            raise BayesNormError(f"precision: {given!r} was given; positive, finite numbers would work.")
        object.__setattr__(self, "precision", numbers if several else numbers[0])

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Variances about the mean squared error, one per output where a row has several."""
        error = like_mean(y, f.mean(0)) - f.mean(0)
        several = f.dim() == 3 and f.shape[-1] > 1
        mse = (error.square().mean(0) if several else error.square().mean()).double()
        mse = mse.clamp_min(torch.finfo(f.dtype).tiny ** 0.5)
        return mse * 1e-6, mse * 1e2

    def with_noise(self, noise: Tensor) -> Gaussian:
        precision = (1 / noise.double()).tolist()
        return Gaussian(tuple(precision) if isinstance(precision, list) else precision)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        return RegressionPredictive(f, self._precision(f).rsqrt(), weights)

    def gaussian_predictive(self, mean: Tensor, variance: Tensor) -> GaussianPredictive:
        return GaussianPredictive(mean, variance, 1 / self._precision(mean[None]))

    def _precision(self, f: Tensor) -> Tensor:
        precision = torch.as_tensor(self.precision, dtype=f.dtype, device=f.device)
        if precision.dim() and (f.dim() < 3 or f.shape[-1] != len(precision)):
            raise InputError(
                f"precision: {len(precision)} numbers for outputs of shape {tuple(f.shape[1:])}; one number, or one "
                "per entry of the last axis, would work."
            )
        return precision
