"""The predictive of regression if the network's output has a Gaussian distribution in closed form."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Self

from torch import Tensor

from .base import Summary, of_seen
from .regression import RegressionPredictive


class GaussianPredictive(RegressionPredictive, Summary):
    """The Gaussian p(y | x) = N(mean, epistemic + aleatoric), independently for every target.

    It has one mixture component and keeps no samples.

    Args:
        mean: Predictive mean, (batch, *out).
        epistemic: Variance of the network's output under the posterior, (batch, *out).
        aleatoric: Variance of the noise, broadcast to the shape of `mean`.
        missing: Whether NaN marks a missing target. Default: False.
    """

    def __init__(self, mean: Tensor, epistemic: Tensor, aleatoric: Tensor, missing: bool = False) -> None:
        super().__init__(mean[None], (epistemic + aleatoric).sqrt()[None], missing=missing)
        object.__setattr__(self, "_parts", (epistemic, aleatoric.expand_as(mean)))

    _parts: tuple[Tensor, Tensor]
    """Epistemic and aleatoric variance: the one mixture component only has their sum."""

    def expected_log_prob(self, y: Any) -> Tensor:
        """Return the mean of log N(y; f, aleatoric) over f ~ N(mean, epistemic), in closed form."""
        target, seen = self.observed(y)
        squares = (target - self.mean).square() + self.epistemic
        log_prob = -0.5 * (squares / self.aleatoric + (2 * math.pi * self.aleatoric).log())
        return of_seen(log_prob, seen)

    @property
    def parts(self) -> tuple[Tensor, ...]:
        return self.mean, *self._parts

    def with_parts(self, *parts: Tensor) -> Self:
        mean, epistemic, aleatoric = parts
        return type(self)(mean, epistemic, aleatoric, self.missing)

    @cached_property
    def epistemic(self) -> Tensor:
        return self._parts[0]

    @cached_property
    def aleatoric(self) -> Tensor:
        return self._parts[1]
