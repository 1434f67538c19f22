"""Weights that share one random scale per group (Louizos, Ullrich and Welling, 2017); the methods have the formulas.

W = z V with V = M + sigma eps, and one z for every group: all weights from an input unit of a linear layer, or to an
output filter of a convolution. V's prior does not depend on z, so the KL divergence is the sum of one for z and one for
V. z has no preferred size, so the unit of V is arbitrary. V is measured relative to the magnitude of the initial
weights. Then z can start at 1, and no prior pulls it elsewhere.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..schema import Array, number, record, text, whole
from .weight_distributions import WeightDistribution, WeightPrior

# Initial standard deviation of a group's scale around 1, or of each logarithm that it consists of.
Z_STD = 0.1

# Logarithms are stored as multiples of this number. An optimiser step then changes a scale by some percent instead of
# some thousandths, and the scales of unneeded groups, which must change a lot, converge within some thousand steps.
LOG_UNIT = 5.0


class GroupWeights(WeightDistribution):
    """W = z (M + softplus(rho) eps), where z has one entry per group along `axis`.

    Args:
        mean: M, the network's parameter.
        std: Initial standard deviations of V.
        axis: The axis of M that the groups lie along.
        center: None, because the prior of V is centred at zero.
        unit: Unit of V's prior, whose standard deviation is `prior.std` times `unit`.
    """

    multiplies_noise = True
    threshold: ClassVar[float]
    """Default threshold: groups with a larger `log_noise` are treated as noise."""

    def __init__(
        self, mean: nn.Parameter, std: Tensor, axis: int = 0, center: Tensor | None = None, *, unit: float = 1.0
    ) -> None:
        super().__init__(mean, std, axis, center)
        self.unit = unit

    def config(self) -> dict[str, Any]:
        return super().config() | {"unit": self.unit}

    def kl(self, prior: WeightPrior, samples: int | None = None) -> Tensor:
        return self.kl_scales() + prior.kl(self.mean / self.unit, self.std / self.unit)

    @abstractmethod
    def kl_scales(self) -> Tensor:
        """Return the KL divergence of z's distribution from its prior, with derivatives."""

    @abstractmethod
    def scale_moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of every z."""

    @abstractmethod
    def log_noise(self) -> Tensor:
        """Return the noise level of every group, as a logarithm. Groups above a threshold are pruned."""

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of every weight."""
        z_mean, z_var = map(self.along, self.scale_moments())
        var = self.std.square()
        return z_mean * self.mean, z_var * (var + self.mean.square()) + z_mean.square() * var


class NormalJeffreysWeights(GroupWeights):
    """Group normal-Jeffreys: z ~ N(mu_z, s_z^2). `z_log_std` is stored in units of `LOG_UNIT`."""

    kind = "normal-jeffreys"
    threshold = 0.0
    schema = record(kind=text, axis=whole(), unit=number(above=0))

    def __init__(
        self, mean: nn.Parameter, std: Tensor, axis: int = 0, center: Tensor | None = None, *, unit: float = 1.0
    ) -> None:
        super().__init__(mean, std, axis, center, unit=unit)
        self.z_mean = nn.Parameter(_one_per_group(mean, axis))
        self.z_log_std = nn.Parameter(torch.full_like(self.z_mean, math.log(Z_STD) / LOG_UNIT))

    @classmethod
    def arrays(cls, shape: tuple[int, ...], config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Array]:
        groups = {name: Array((shape[config["axis"]],)) for name in ("z_mean", "z_log_std")}
        return super().arrays(shape, config, tensors) | groups

    def multipliers(self, n: int) -> Tensor:
        return self.z_mean + (LOG_UNIT * self.z_log_std).exp() * _noise(n, self.z_mean)

    def scale_moments(self) -> tuple[Tensor, Tensor]:
        return self.z_mean, (2 * LOG_UNIT * self.z_log_std).exp()

    def log_noise(self) -> Tensor:
        """Return ln alpha = ln s_z^2 - ln mu_z^2."""
        tiny = torch.finfo(self.z_mean.dtype).tiny
        return 2 * LOG_UNIT * self.z_log_std - self.z_mean.square().clamp_min(tiny).log()

    def kl_scales(self) -> Tensor:
        """Return the approximation of Molchanov et al. (2017), with the constant that makes it 0 for pure noise."""
        log_alpha = self.log_noise()
        near = 0.63576 * torch.sigmoid(1.87320 + 1.48695 * log_alpha)
        return (0.63576 - near + 0.5 * functional.softplus(-log_alpha)).sum()


class HorseshoeWeights(GroupWeights):
    """Group horseshoe: z_i^2 = s_a s_b a_i b_i, all four log-normal; s_a and s_b are shared by the tensor.

    Each factor stores the mean and the log standard deviation of its logarithm, in units of `LOG_UNIT`.

    Args:
        mean: M, the network's parameter.
        std: Initial standard deviations of V.
        axis: The axis of M that the groups lie along.
        center: None, because the prior of V is centred at zero.
        unit: Unit of V's prior.
        global_scale: t_0, the scale of the half-Cauchy prior of the tensor's factor.
    """

    a: Tensor
    b: Tensor
    s_a: Tensor
    s_b: Tensor

    kind = "horseshoe"
    threshold = 1.0
    schema = record(kind=text, axis=whole(), unit=number(above=0), global_scale=number(above=0))

    def __init__(
        self,
        mean: nn.Parameter,
        std: Tensor,
        axis: int = 0,
        center: Tensor | None = None,
        *,
        unit: float = 1.0,
        global_scale: float,
    ) -> None:
        super().__init__(mean, std, axis, center, unit=unit)
        self.global_scale = global_scale
        # s_a starts at its prior's mean. s_b, whose tail is heavy, compensates for that, so z starts around 1.
        s_a = 2 * math.log(global_scale) - math.log(2)
        ones = _one_per_group(mean, axis)
        starts = {"a": 0 * ones, "b": 0 * ones, "s_a": s_a * ones[0], "s_b": -s_a * ones[0]}
        for name, start in starts.items():
            held = torch.stack([start, torch.full_like(start, math.log(Z_STD))]) / LOG_UNIT
            self.register_parameter(name, nn.Parameter(held))

    def config(self) -> dict[str, Any]:
        return super().config() | {"global_scale": self.global_scale}

    @classmethod
    def arrays(cls, shape: tuple[int, ...], config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Array]:
        groups = shape[config["axis"]]
        factors = {"a": Array((2, groups)), "b": Array((2, groups)), "s_a": Array((2,)), "s_b": Array((2,))}
        return super().arrays(shape, config, tensors) | factors

    def multipliers(self, n: int) -> Tensor:
        a, b, s_a, s_b = self._factors()
        local = a[0] + b[0] + torch.hypot(a[1].exp(), b[1].exp()) * _noise(n, a[0])
        shared = s_a[0] + s_b[0] + torch.hypot(s_a[1].exp(), s_b[1].exp()) * _noise(n, a[0, :1])
        return (0.5 * (local + shared)).exp()

    def scale_moments(self) -> tuple[Tensor, Tensor]:
        mean, var = self._log_z()
        expected = (mean + var / 2).exp()
        return expected, expected.square() * torch.expm1(var)

    def log_noise(self) -> Tensor:
        """Return minus the logarithm of z's mode."""
        mean, var = self._log_z()
        return var - mean

    def kl_scales(self) -> Tensor:
        a, b, s_a, s_b = self._factors()
        gammas = _gamma_kl(a[0], a[1]).sum() + _gamma_kl(s_a[0], s_a[1], self.global_scale)
        # b ~ inverse Gamma(1/2, 1) means 1 / b ~ Gamma(1/2, 1), and the inverse of a log-normal variable is log-normal.
        return gammas + _gamma_kl(-b[0], b[1]).sum() + _gamma_kl(-s_b[0], s_b[1])

    def _factors(self) -> list[Tensor]:
        """Return mean and log standard deviation of the logarithms of a, b, s_a and s_b."""
        return [LOG_UNIT * held for held in (self.a, self.b, self.s_a, self.s_b)]

    def _log_z(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of ln z."""
        factors = self._factors()
        mean = sum((held[0] for held in factors), torch.zeros_like(factors[0][0]))
        var = sum(((2 * held[1]).exp() for held in factors), torch.zeros_like(mean))
        return 0.5 * mean, 0.25 * var


def _gamma_kl(mean: Tensor, log_std: Tensor, scale: float = 1.0) -> Tensor:
    """Return the KL divergence of a log-normal from Gamma(1/2, scale^2), per entry; `mean` is that of the logarithm."""
    relative = mean - 2 * math.log(scale)
    return (relative + (2 * log_std).exp() / 2).exp() - 0.5 * (relative + 2 * log_std + 1 + math.log(2))


def _one_per_group(mean: Tensor, axis: int) -> Tensor:
    return torch.ones_like(mean.detach().movedim(axis, 0).flatten(1)[:, 0])


def _noise(n: int, like: Tensor) -> Tensor:
    return torch.randn(n, len(like), dtype=like.dtype, device=like.device)
