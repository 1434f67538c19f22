"""Base classes of likelihoods for real targets, y = location + scale * noise."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers
from ..errors import InputError
from ..predictive import NoiseFamily, RegressionPredictive, as_targets, at_least_single, observed_targets
from .base import Likelihood
from .scales import (
    as_numbers,
    holds,
    like_outputs,
    on_outputs,
    positive_numbers,
    require_axis,
    require_flag,
    require_moderate,
)


@dataclass(frozen=True)
class RealTargets(Likelihood, ABC):
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
        target, seen = self._seen(y, location)
        cost = log_scale - self.family.log_prob((target - location) * (-log_scale).exp())
        if seen is not None:
            cost = torch.where(seen, cost, 0)
        return cost.sum() / len(f)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        location, log_scale = self.split(at_least_single(f))
        return RegressionPredictive(location, log_scale.exp(), weights, self.family, self.missing)

    def target_columns(self, outputs: int) -> int:
        return outputs

    def errors(self, location: Tensor, y: Any) -> Tensor:
        """Return target minus location, (batch, *out), with NaN for missing targets."""
        target, seen = observed_targets(y, location, self.missing)
        return target - location if seen is None else torch.where(seen, target - location, math.nan)

    def _seen(self, y: Any, location: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return targets in the shape of the outputs, and a mask of those that are present (None: all)."""
        y = y if isinstance(y, Tensor) else as_targets(y, location.device, location.dtype)
        try:
            target = like_outputs(y, location)
        except InputError as error:
            raise InputError(f"{error} {self._hint(y, location)}".rstrip()) from None
        unknown = target.isnan()
        if self.missing:
            return torch.where(unknown, location.detach().to(target.dtype), target), ~unknown
        if holds(unknown.any()):
            raise InputError(
                f"y has {int(unknown.sum())} NaN among {y.numel()} values. Drop those rows, or pass missing=True to "
                f"{type(self).__name__}."
            )
        return target, None

    def _hint(self, y: Tensor, location: Tensor) -> str:
        """Return an additional sentence for errors about the shape of targets."""
        return ""


@dataclass(frozen=True)
class FixedScale(RealTargets, ABC):
    """The base class of likelihoods with constant noise: one scale, or one per output."""

    _name: ClassVar[str]
    """Name of the field with the noise."""

    _power: ClassVar[int] = 1
    """The power of the noise's scale that this field is."""

    @abstractmethod
    def _log_scale(self, noise: Tensor) -> Tensor:
        """Return the logarithm of the scale for this `noise`."""

    def split(self, f: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return f, on_outputs(self._name, self._log_scale(self.noise if noise is None else noise), f, self.axis)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> RegressionPredictive:
        f = at_least_single(f)
        self._require_moderate(f)
        scale = on_outputs(self._name, self._log_scale(self.noise).exp(), f, self.axis)
        return RegressionPredictive(f, scale, weights, self.family, self.missing)

    def _require_moderate(self, f: Tensor) -> None:
        """Raise an error if the noise is too extreme for outputs of this dtype."""
        require_moderate(self._name, getattr(self, self._name), f.dtype, power=self._power)


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


class FixedNoiseByScale(NoiseByScale, FixedScale, ABC):
    """A `FixedScale` whose noise is the scale itself."""

    _name = "scale"

    def _log_scale(self, noise: Tensor) -> Tensor:
        return noise.log()
