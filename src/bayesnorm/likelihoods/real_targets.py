"""Base classes of likelihoods for real targets, y = location + scale * noise."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_flag, require_number
from ..errors import InputError
from ..predictive import (
    LEAST_DF,
    NoiseFamily,
    RegressionPredictive,
    StudentTNoise,
    as_targets,
    at_least_single,
    observed_targets,
)
from .base import Likelihood
from .scales import (
    as_numbers,
    holds,
    like_outputs,
    positive_numbers,
    require_axis,
)


@dataclass(frozen=True)
class RealTargets(Likelihood[RegressionPredictive], ABC):
    """The base class of likelihoods for real targets.

    Args:
        axis: The axis of outputs (batch, *out) that several targets lie along; 1 for channels. Default: -1.
        missing: Whether NaN marks a missing target. It adds nothing to the loss, and its log density and CRPS are 0.
            Default: False, NaN raises an error.
    """

    axis: int = field(default=-1, kw_only=True)
    missing: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_axis(self.axis)
        require_flag("missing", self.missing)

    @property
    @abstractmethod
    def family(self) -> NoiseFamily:
        """The family of the noise in standard form."""

    @abstractmethod
    def split(self, f: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Split outputs (n, batch, *out) into the location and the logarithm of the scale, which broadcasts to it."""

    def loss(self, f: Tensor, y: Any, noise: Tensor | None = None) -> Tensor:
        f = at_least_single(f)
        location, log_scale = self.split(f[None], noise)
        location, log_scale = location[0], log_scale[0] if log_scale.dim() == location.dim() else log_scale
        target, present = self._targets(y, location)
        cost = log_scale - self.family.log_prob((target - location) * (-log_scale).exp())
        if present is not None:
            cost = torch.where(present, cost, 0)
        return cost.sum() / len(f)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        location, log_scale = self.split(at_least_single(f))
        return RegressionPredictive(location, log_scale.exp(), weights, self.family, self.missing)

    def target_columns(self, outputs: int) -> int:
        return outputs

    def errors(self, location: Tensor, y: Any) -> Tensor:
        """Return target minus location, (batch, *out), with NaN for missing targets."""
        target, present = observed_targets(y, location, self.missing)
        return target - location if present is None else torch.where(present, target - location, math.nan)

    def _targets(self, y: Any, location: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return targets in the shape of the outputs, and a mask of those that are present (None: all)."""
        y = y if isinstance(y, Tensor) else as_targets(y, location.device, location.dtype)
        try:
            target = like_outputs(y, location)
        except InputError as error:
            raise InputError(f"{error} {self._hint(y, location)}".rstrip()) from None
        missing = target.isnan()
        if self.missing:
            return torch.where(missing, location.detach().to(target.dtype), target), ~missing
        if holds(missing.any()):
            raise InputError(
                f"y has {int(missing.sum())} NaN among {y.numel()} values. Drop those rows, or pass missing=True to "
                f"{type(self).__name__}."
            )
        return target, None

    def _hint(self, y: Tensor, location: Tensor) -> str:
        """Return an additional sentence for errors about the shape of targets."""
        return ""


class NoiseByScale(RealTargets, ABC):
    """The base class of likelihoods whose noise is the field `scale`: a scale, or a factor of predicted scales."""

    if TYPE_CHECKING:
        scale: float | tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "scale", positive_numbers("scale", self.scale))

    @property
    def noise(self) -> Tensor:
        """The scale of the noise, or the factor of the predicted scales."""
        return torch.tensor(self.scale, dtype=torch.float64)

    def with_noise(self, noise: Tensor) -> Self:
        changed: dict[str, Any] = {"scale": as_numbers(noise)}
        return dataclasses.replace(self, **changed)


# Above this, the density of Student's t overflows.
LARGEST_DF = 1e9


class StudentTTargets(RealTargets, ABC):
    """The base class of likelihoods whose noise has the degrees of freedom `df`."""

    if TYPE_CHECKING:
        df: float

    def __post_init__(self) -> None:
        super().__post_init__()
        requirement = (
            f"a finite number from {LEAST_DF} (the mean exists only above 1) to {LARGEST_DF:g} (practically Gaussian)"
        )
        df = require_number("df", self.df, least=LEAST_DF, most=LARGEST_DF, requirement=requirement)
        object.__setattr__(self, "df", df)

    @property
    def family(self) -> StudentTNoise:
        return StudentTNoise(self.df)
