"""Families of observation noise, all symmetric and in standard form (location 0, scale 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .student_t import StudentTNoise


@dataclass(frozen=True)
class NormalNoise:
    """The standard normal distribution."""

    variance: float = 1.0

    def log_prob(self, z: Tensor) -> Tensor:
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def cdf(self, z: Tensor) -> Tensor:
        return 0.5 * torch.erfc(-math.sqrt(0.5) * z)  # torch's `ndtr` is 0 below -9, and inaccurate well above that

    def icdf(self, level: Tensor) -> Tensor:
        return torch.special.ndtri(level)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return self.icdf(_levels(shape, generator))

    def distance(self, difference: Tensor, scale: Tensor) -> Tensor:
        """Return E|difference + scale * noise|, which is |difference| if the scale is 0."""
        z = difference * (math.sqrt(0.5) / scale.clamp_min(torch.finfo(scale.dtype).tiny))
        return difference * torch.erf(z) + math.sqrt(2 / math.pi) * scale * torch.exp(-z.square())

    def distance_of_two(self, difference: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return E|difference + first * noise - second * noise'| for two independent noises."""
        return self.distance(difference, math.sqrt(2) * first if first is second else torch.hypot(first, second))


@dataclass(frozen=True)
class LaplaceNoise:
    """The Laplace distribution exp(-|z|) / 2."""

    variance: float = 2.0

    def log_prob(self, z: Tensor) -> Tensor:
        return -z.abs() - math.log(2)

    def cdf(self, z: Tensor) -> Tensor:
        tail = 0.5 * torch.exp(-z.abs())
        return torch.where(z < 0, tail, 1 - tail)

    def icdf(self, level: Tensor) -> Tensor:
        return torch.where(level < 0.5, torch.log(2 * level), -torch.log(2 * (1 - level)))

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return self.icdf(_levels(shape, generator))

    def distance(self, difference: Tensor, scale: Tensor) -> Tensor:
        """Return E|difference + scale * noise| = |d| + s exp(-|d| / s)."""
        far = difference.abs()
        return far + scale * torch.exp(-far / scale.clamp_min(torch.finfo(scale.dtype).tiny))

    def distance_of_two(self, difference: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return E|difference + first * noise - second * noise'| for two independent noises.

        For scales a and b it is |d| + (a^3 exp(-|d| / a) - b^3 exp(-|d| / b)) / (a^2 - b^2). For equal scales s it is
        |d| + (3 s + |d|) exp(-|d| / s) / 2. Nearly equal scales would cancel in the first formula, so their mean
        replaces both; the error is of second order.
        """
        far = difference.abs()
        a, b = torch.maximum(first, second), torch.minimum(first, second)
        tiny = torch.finfo(a.dtype).tiny
        middle = ((a + b) / 2).clamp_min(tiny)
        equal = (3 * middle + far) / 2 * torch.exp(-far / middle)
        if first is second:
            return far + equal
        near = a - b <= torch.finfo(a.dtype).eps ** (1 / 3) * a
        ratio = b / a.clamp_min(tiny)  # its powers cannot overflow, whatever the unit
        apart = torch.where(near, 1.0, 1 - ratio.square())
        tails = torch.exp(-far / a.clamp_min(tiny)) - ratio**3 * torch.exp(-far / b.clamp_min(tiny))
        return far + torch.where(near, equal, a * tails / apart)


NoiseFamily = NormalNoise | LaplaceNoise | StudentTNoise
"""Any family of noise."""


def _levels(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Sample the probabilities of quantiles, away from 0 and 1, where the quantiles are infinite."""
    return torch.rand(shape, generator=generator, dtype=torch.float64).clamp_(1e-12, 1 - 1e-12)
