"""Student's t noise in standard form, with the distances that its CRPS is made of.

Torch has no incomplete beta function, so the distribution function comes from that function's continued fraction; as
this is slow, by way of a table with cubic pieces (a relative error of 1e-9 at most). All of it is in double precision,
where a device has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

LEAST_DF = 1.1
"""Degrees of freedom from which a mean distance is finite by a margin that quadrature can do with."""

BISECTIONS = 80
MOST_TERMS = 200
"""Of the continued fraction, which takes some tens."""

NEARLY_NORMAL = 300.0
"""Degrees of freedom above which an expansion about the normal distribution is exact to 1e-12."""

TABLE_POINTS = 1025
TABLE_REACH = 12.0
"""Distances are tabulated up to sinh of this, 8e4; what is beyond follows the tails' power law."""

FINE_POINTS, COARSE_POINTS = 2001, 401
"""Of integrals over the noise: for the table, and for single distances (which are right to 1e-6)."""


@dataclass(frozen=True)
class StudentTNoise:
    """Student's t distribution.

    Args:
        df: Degrees of freedom, from 1.1.
    """

    df: float

    @property
    def variance(self) -> float:
        return self.df / (self.df - 2) if self.df > 2 else math.inf

    def log_prob(self, z: Tensor) -> Tensor:
        return self._log_norm - 0.5 * (self.df + 1) * torch.log1p(z.square() / self.df)

    def cdf(self, z: Tensor) -> Tensor:
        return _in_double(self._cdf, z)

    def icdf(self, level: Tensor) -> Tensor:
        return _in_double(self._icdf, level)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """By Bailey's polar method, exact for any degrees of freedom."""
        first, second = torch.rand((2, *shape), generator=generator, dtype=torch.float64)
        radius = (self.df * torch.expm1(-2 / self.df * first.clamp_min(1e-300).log())).sqrt()
        return radius * torch.cos(2 * math.pi * second)

    def distance(self, difference: Tensor, scale: Tensor) -> Tensor:
        """E|difference + scale * noise| = |d| (2 F(z) - 1) + 2 s p(z) (df + z^2) / (df - 1), z = |d| / s."""
        far = difference.abs()
        z = far / scale.clamp_min(torch.finfo(scale.dtype).tiny)
        return far + scale * _in_double(self._excess, z)

    def distance_of_two(self, difference: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """E|difference + first * noise - second * noise'| of two independent noises.

        There is no closed form. Where both have the same scale s it is s h(|d| / s), with h from a table of cubic
        pieces; else it is integrated point by point, which is some hundred times slower and right to 1e-6.
        """
        if first is second or torch.equal(first, second):
            far = difference.abs()
            z = far / first.clamp_min(torch.finfo(first.dtype).tiny)
            return far + first * _in_double(self._excess_of_two, z)
        wide, narrow = torch.maximum(first, second).double(), torch.minimum(first, second).double()
        total = torch.zeros_like(wide + difference)
        nodes, weights = (part.tolist() for part in _nodes(self.df, COARSE_POINTS))
        for node, weight in zip(nodes, weights, strict=True):  # symmetric: the sign of the noise is of no account
            total = total + weight * self.distance(difference + node * narrow, wide)
        return total.to(difference.dtype)

    @property
    def _log_norm(self) -> float:
        if self.df > 1000:  # where the two would cancel
            return -0.5 * math.log(2 * math.pi) - 1 / (4 * self.df) + 1 / (24 * self.df**3)
        return math.lgamma((self.df + 1) / 2) - math.lgamma(self.df / 2) - 0.5 * math.log(self.df * math.pi)

    def _cdf(self, z: Tensor) -> Tensor:
        tail = self._tail(z.abs())
        return torch.where(z < 0, tail, 1 - tail)

    def _tail(self, z: Tensor) -> Tensor:
        """P(noise > z) for z >= 0."""
        if self.df > NEARLY_NORMAL:
            return self._nearly_normal_tail(z.square())
        return (_interpolated(_tail_table(self.df), z) - self.df * _log_beyond(z)).exp()

    def _log_tail(self, z: Tensor) -> Tensor:
        """log P(noise > z) for z >= 0, to full precision, by the continued fraction."""
        square = z.square().clamp_max(1e300)
        below, above = self.df / (self.df + square), square / (self.df + square)
        a, b = self.df / 2, 0.5
        outside = below < (a + 1) / (a + b + 2)
        first, second = z.new_tensor(a), z.new_tensor(b)
        fraction = _beta_fraction(
            torch.where(outside, first, second),
            torch.where(outside, second, first),
            torch.where(outside, below, above),
        )
        log_front = self._log_norm + 0.5 * math.log(self.df) - a * torch.log1p(square / self.df)
        log_front = log_front + 0.5 * above.clamp_min(1e-300).log() + fraction.log()
        return torch.where(outside, log_front - math.log(2 * a), (0.5 - 0.5 / b * log_front.exp()).log())

    def _nearly_normal_tail(self, square: Tensor) -> Tensor:
        """Hill's expansion (1970, algorithm 395), where the continued fraction would be long."""
        a = self.df - 0.5
        b, y = 48 * a**2, a * torch.log1p(square.clamp_max(1e300) / self.df)
        inner = (((-0.4 * y - 3.3) * y - 24) * y - 85.5) / (0.8 * y.square() + 100 + b)
        return 0.5 * torch.special.erfc(((inner + y + 3) / b + 1) * (0.5 * y).sqrt())

    def _icdf(self, level: Tensor) -> Tensor:
        tail = torch.minimum(level, 1 - level)
        # log P(noise > z) <= log norm + (df - 1) / 2 log df - df log z, which is solved for the farthest z.
        farthest = (self._log_norm + (self.df - 1) / 2 * math.log(self.df) - tail.log()) / self.df
        low, high = torch.zeros_like(tail), torch.asinh(farthest.clamp_max(600).exp()) + 1
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            above = self._tail(torch.sinh(middle)) > tail
            low, high = torch.where(above, middle, low), torch.where(above, high, middle)
        return torch.sinh((low + high) / 2) * torch.where(level < 0.5, -1.0, 1.0)

    def _excess(self, z: Tensor) -> Tensor:
        """E|z + noise| - |z| for z >= 0."""
        z = z.clamp_max(1e300)
        density = (self._log_norm - 0.5 * (self.df - 1) * torch.log1p(z.square() / self.df)).exp() * self.df
        return 2 * (density / (self.df - 1) - z * self._tail(z))

    def _excess_of_two(self, z: Tensor) -> Tensor:
        """E|z + noise - noise'| - |z| for z >= 0, from the table."""
        return _interpolated(_distance_table(self.df), z) * ((1 - self.df) * _log_beyond(z)).exp()


@lru_cache(maxsize=64)
def _nodes(df: float, points: int) -> tuple[Tensor, Tensor]:
    """Points and weights of an integral over the noise: the trapezium rule after z = sinh(2 sinh(x))."""
    reach = math.asinh(0.5 * min(300.0, 25 / (df - 1) + 5))
    x = torch.linspace(-reach, reach, points, dtype=torch.float64)
    inner = 2 * torch.sinh(x)
    node = torch.sinh(inner)
    log_size = inner.abs() + torch.log1p(torch.exp(-2 * inner.abs())) + (2 * torch.cosh(x)).log() - math.log(2)
    weight = (StudentTNoise(df).log_prob(node) + log_size).exp()
    return node, weight / weight.sum()


def _interpolated(table: tuple[Tensor, Tensor], z: Tensor) -> Tensor:
    """The cubic pieces that have the table's values and slopes at sinh(0, step, ...); its last value beyond."""
    values, slopes = (part.to(z) for part in table)
    step = TABLE_REACH / (TABLE_POINTS - 1)
    place = (torch.asinh(z) / step).clamp_max(TABLE_POINTS - 1)
    index = place.long().clamp(0, TABLE_POINTS - 2)
    t = place - index
    return (
        values[index] * (1 + 2 * t) * (1 - t) ** 2
        + values[index + 1] * t**2 * (3 - 2 * t)
        + step * (slopes[index] * t * (1 - t) ** 2 - slopes[index + 1] * t**2 * (1 - t))
    )


def _log_beyond(z: Tensor) -> Tensor:
    """How far beyond the table z is, as a logarithm; 0 within."""
    end = math.sinh(TABLE_REACH)
    return (z / end).clamp_min(1).log()


@lru_cache(maxsize=64)
def _tail_table(df: float) -> tuple[Tensor, Tensor]:
    """Logarithms of P(noise > z) at sinh(0, step, ...), and their slopes by asinh."""
    v = torch.linspace(0, TABLE_REACH, TABLE_POINTS, dtype=torch.float64)
    z = torch.sinh(v)
    log_tail = StudentTNoise(df)._log_tail(z)
    return log_tail, -(StudentTNoise(df).log_prob(z) - log_tail).exp() * torch.cosh(v)


@lru_cache(maxsize=64)
def _distance_table(df: float) -> tuple[Tensor, Tensor]:
    """Excess distances of two noises at sinh(0, step, ...), and their slopes by asinh."""
    noise, (node, weight) = StudentTNoise(df), _nodes(df, FINE_POINTS)
    v = torch.linspace(0, TABLE_REACH, TABLE_POINTS, dtype=torch.float64)
    z = torch.sinh(v)[:, None]
    apart = z + node
    # E|z + t + noise| - z, by pairs +t and -t, whose |z + t| + |z - t| - 2 z is 2 max(|t| - z, 0).
    values = ((noise._excess(apart.abs()) + (node.abs() - z).clamp_min(0)) * weight).sum(1)
    tails = (noise._cdf(-apart) * weight).sum(1)
    return values, -2 * tails * torch.cosh(v)


def _beta_fraction(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    tiny = 1e-300
    c = torch.ones_like(x)
    d = 1 / _not_zero(1 - (a + b) * x / (a + 1), tiny)
    found = d
    for m in range(1, MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + term * d, tiny)
            c = _not_zero(1 + term / c, tiny)
            found = found * c * d
        if m % 8 == 0 and bool(((c * d - 1).abs() < 1e-14).all()):
            break
    return found


def _not_zero(values: Tensor, tiny: float) -> Tensor:
    return torch.where(values.abs() < tiny, tiny, values)


def _in_double(function: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    wide = values if values.device.type == "mps" else values.double()
    return function(wide).to(values.dtype)
