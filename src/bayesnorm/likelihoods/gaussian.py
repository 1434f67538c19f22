"""Gaussian noise of known precision."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import BayesNormError, InputError
from ..predictive import RegressionPredictive
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
        given = self.precision
        values = tuple(given) if isinstance(given, Sequence | Tensor) else (given,)
        try:
            numbers = tuple(float(value) for value in values)
        except (TypeError, ValueError) as error:
            raise BayesNormError(f"precision: {given!r} was given; positive numbers would work.") from error
        if not numbers or not all(math.isfinite(value) and value > 0 for value in numbers):
            raise BayesNormError(f"precision: {given!r} was given; positive, finite numbers would work.")
        object.__setattr__(self, "precision", numbers if isinstance(given, Sequence | Tensor) else numbers[0])

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        precision = torch.as_tensor(self.precision, dtype=f.dtype, device=f.device)
        if precision.dim() and (f.dim() < 3 or f.shape[-1] != len(precision)):
            raise InputError(
                f"precision: {len(precision)} numbers for outputs of shape {tuple(f.shape[1:])}; one number, or one "
                "per entry of the last axis, would work."
            )
        return RegressionPredictive(f, precision.rsqrt(), weights)
