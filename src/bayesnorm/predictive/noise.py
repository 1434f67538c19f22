"""Families of observation noise, all symmetric and in standard form (location 0, scale 1).

The CRPS needs expected distances. Those of Student's t noise, its distribution function and its quantiles come from
SciPy. They are needed for every sample of every example, so SciPy only computes tables of them, once per number of
degrees of freedom. Torch then evaluates cubic splines through the tables, on any device and with derivatives.
Expected distances are in double precision if the device supports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
import torch
from torch import Tensor
from torch.nn.functional import embedding

# Smallest number of degrees of freedom for which the numerical integral of the mean distance is accurate.
LEAST_DF = 1.1

# The distribution function is tabulated up to this normal deviate, where its tail is about 1e-280.
DEVIATE_REACH, DEVIATE_PIECES = 36.0, 2048

# Distances of two noises are tabulated up to this log(1 + z), z = 2e5. Beyond, they follow the tails' power law.
LOG_REACH, LOG_PIECES = 12.0, 1024

# Points of integrals over the noise: for the table, and for single distances (accurate to 1e-6).
FINE_POINTS, COARSE_POINTS = 2001, 401


@dataclass(frozen=True)
class StudentTNoise:
    """Student's t distribution.

    Args:
        df: Degrees of freedom, at least 1.1.
    """

    df: float

    @property
    def variance(self) -> float:
        return self.df / (self.df - 2) if self.df > 2 else math.inf

    def log_prob(self, z: Tensor) -> Tensor:
        return self._log_norm - 0.5 * (self.df + 1) * torch.log1p(z.square() / self.df)

    def log_slope(self, z: Tensor) -> Tensor:
        return -(self.df + 1) * z / (self.df + z.square())

    def cdf(self, z: Tensor) -> Tensor:
        return self._cdf(z)

    def icdf(self, level: Tensor) -> Tensor:
        quantiles = scipy.special.stdtrit(self.df, level.detach().cpu().double().numpy())
        return torch.as_tensor(quantiles).to(level)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Sample by Bailey's polar method, which is exact for any number of degrees of freedom."""
        first, second = torch.rand((2, *shape), generator=generator, dtype=torch.float64)
        radius = (self.df * torch.expm1(-2 / self.df * first.clamp_min(1e-300).log())).sqrt()
        return radius * torch.cos(2 * math.pi * second)

    def distance(self, difference: Tensor, scale: Tensor) -> Tensor:
        """Return E|difference + scale * noise| = |d| (2 F(z) - 1) + 2 s p(z) (df + z^2) / (df - 1), z = |d| / s."""
        far = difference.abs()
        z = far / scale.clamp_min(torch.finfo(scale.dtype).tiny)
        return far + scale * _in_double(self._excess, z)

    def distance_of_two(self, difference: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """Return E|difference + first * noise - second * noise'| for two independent noises.

        There is no closed form. For equal scales s it is s h(|d| / s), with h from a table. Otherwise it is integrated
        point by point, which is about a hundred times slower and accurate to 1e-6.
        """
        if first is second or torch.equal(first, second):
            far = difference.abs()
            z = far / first.clamp_min(torch.finfo(first.dtype).tiny)
            return far + first * _in_double(self._excess_of_two, z)
        wide, narrow = torch.maximum(first, second).double(), torch.minimum(first, second).double()
        total = torch.zeros_like(wide + difference)
        nodes, weights = (part.tolist() for part in _nodes(self.df, COARSE_POINTS))
        for node, weight in zip(nodes, weights, strict=True):  # by symmetry, the sign of the noise does not matter
            total = total + weight * self.distance(difference + node * narrow, wide)
        return total.to(difference.dtype)

    @property
    def _log_norm(self) -> float:
        """The logarithm of the density at 0."""
        if self.df > 1000:  # where the two lgamma terms would cancel
            return -0.5 * math.log(2 * math.pi) - 1 / (4 * self.df) + 1 / (24 * self.df**3)
        return math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2) - 0.5 * math.log(self.df * math.pi)

    def _cdf(self, z: Tensor) -> Tensor:
        """Return P(noise <= z), computed from the normal deviate with the same probability.

        Wallace's approximation of that deviate (1959), y = sqrt(df log(1 + z^2 / df)), differs from it by a factor that
        varies little. The table contains this factor.
        """
        square = self.df * torch.log1p(z.square() / self.df)
        y = square.clamp_min(torch.finfo(z.dtype).tiny).sqrt()  # the derivative of sqrt at 0 would be infinite
        deviate = y * _deviate_table(self.df)(y)
        return 0.5 * torch.erfc(math.sqrt(0.5) * torch.where(z < 0, deviate, -deviate))

    def _excess(self, z: Tensor) -> Tensor:
        """Return E|z + noise| - |z| for z >= 0."""
        z = z.clamp_max(1e300)
        density = (self._log_norm - 0.5 * (self.df - 1) * torch.log1p(z.square() / self.df)).exp() * self.df
        return 2 * (density / (self.df - 1) - z * self._cdf(-z))

    def _excess_of_two(self, z: Tensor) -> Tensor:
        """Return E|z + noise - noise'| - |z| for z >= 0, from the table."""
        place = torch.log1p(z)
        return _distance_table(self.df)(place) * ((1 - self.df) * (place - LOG_REACH).clamp_min(0)).exp()


class _Table:
    """A function of v >= 0: a cubic spline through values at equal steps from 0, and constant beyond the last one."""

    def __init__(self, values: np.ndarray, reach: float) -> None:
        spline = scipy.interpolate.CubicSpline(np.arange(len(values)), values)
        self.coefficients = torch.from_numpy(spline.c[::-1].T.copy())  # (pieces, 4), lowest power first
        self.pieces = len(values) - 1
        self.step = reach / self.pieces

    def __call__(self, v: Tensor) -> Tensor:
        place = (v / self.step).clamp_max(self.pieces)
        piece = place.long().clamp(0, self.pieces - 1)  # NaN gets some piece, but t below keeps it NaN
        t = place - piece
        constant, linear, square, cube = embedding(piece, self.coefficients.to(v)).unbind(-1)  # indexing is slower
        return constant + t * (linear + t * (square + t * cube))


@lru_cache(maxsize=64)
def _deviate_table(df: float) -> _Table:
    """Tabulate the ratio of the normal deviate to Wallace's approximation y, as a function of y."""
    reach = min(DEVIATE_REACH, math.sqrt(700 * df))  # where z^2 is still finite
    y = np.linspace(0, reach, DEVIATE_PIECES + 1)
    z = np.sqrt(df * np.expm1(y[1:] ** 2 / df))
    ratio = -scipy.special.ndtri(scipy.special.stdtr(df, -z)) / y[1:]
    at_0 = math.sqrt(2 * math.pi) * math.exp(StudentTNoise(df)._log_norm)
    return _Table(np.append(at_0, ratio), reach)


@lru_cache(maxsize=64)
def _distance_table(df: float) -> _Table:
    """Tabulate E|z + noise - noise'| - |z| as a function of log(1 + z)."""
    noise, (node, weight) = StudentTNoise(df), _nodes(df, FINE_POINTS)
    z = torch.linspace(0, LOG_REACH, LOG_PIECES + 1, dtype=torch.float64).expm1()[:, None]
    # E|z + t + noise| - z, in pairs +t and -t, for which |z + t| + |z - t| - 2 z is 2 max(|t| - z, 0).
    values = ((noise._excess((z + node).abs()) + (node.abs() - z).clamp_min(0)) * weight).sum(1)
    return _Table(values.numpy(), LOG_REACH)


@lru_cache(maxsize=64)
def _nodes(df: float, points: int) -> tuple[Tensor, Tensor]:
    """Return points and weights of an integral over the noise, by the trapezoidal rule after z = sinh(2 sinh(x))."""
    reach = math.asinh(0.5 * min(300.0, 25 / (df - 1) + 5))
    x = torch.linspace(-reach, reach, points, dtype=torch.float64)
    inner = 2 * torch.sinh(x)
    node = torch.sinh(inner)
    log_size = inner.abs() + torch.log1p(torch.exp(-2 * inner.abs())) + (2 * torch.cosh(x)).log() - math.log(2)
    weight = (StudentTNoise(df).log_prob(node) + log_size).exp()
    return node, weight / weight.sum()


def _in_double(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Apply a function in double precision if the device supports it."""
    wide = values if values.device.type == "mps" else values.double()
    return function(wide).to(values.dtype)


@dataclass(frozen=True)
class NormalNoise:
    """The standard normal distribution."""

    variance: float = 1.0

    def log_prob(self, z: Tensor) -> Tensor:
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def log_slope(self, z: Tensor) -> Tensor:
        """Return the derivative of `log_prob`."""
        return -z

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

    def log_slope(self, z: Tensor) -> Tensor:
        return -z.sign()

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
