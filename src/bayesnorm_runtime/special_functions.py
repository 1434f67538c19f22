"""The special functions that tests of drift need, for machines without SciPy.

`special.py` takes SciPy's functions where they are installed, and these otherwise. All take arrays. They agree with
SciPy's to about ten digits, unless a result is so small that it does not matter.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

# From this shape on, the incomplete gamma function is an expansion in 1 / shape instead of a series.
LARGE_SHAPE = 1e4
# Terms of series and of continued fractions; at the largest shape about 700 are needed.
TERMS = 2000
# Relative size of a term after which a series ends.
SMALL = 1e-16

_lgamma = np.vectorize(math.lgamma, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])
_inv_cdf = np.vectorize(NormalDist().inv_cdf, otypes=[float])


def gammaln(a: Any) -> Any:
    """Return the logarithm of the gamma function."""
    return _lgamma(a)[()]


def ndtr(x: Any) -> Any:
    """Return the standard normal distribution function."""
    return 0.5 * _erfc(-np.asarray(x, dtype=float) / math.sqrt(2))


def ndtri(p: Any) -> Any:
    """Return quantiles of the standard normal distribution."""
    p = np.asarray(p, dtype=float)
    inside = (p > 0) & (p < 1)
    ends = np.where(p <= 0, -np.inf, np.inf)
    return np.where(np.isnan(p), np.nan, np.where(inside, _inv_cdf(np.where(inside, p, 0.5)), ends))


def digamma(a: Any) -> Any:
    """Return the derivative of `gammaln`, for positive arguments."""
    a = np.asarray(a, dtype=float)
    result = np.zeros_like(a)
    for _ in range(10):  # shift arguments to 10 and more, where the asymptotic series holds
        small = a < 10
        result = result - np.where(small, 1 / np.where(small, a, 1), 0)
        a = np.where(small, a + 1, a)
    inverse = 1 / a**2
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    return result + np.log(a) - 0.5 / a - series


def gammainc(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function."""
    return _incomplete_gamma(a, x)[0]


def gammaincc(a: Any, x: Any) -> Any:
    """Return the regularised upper incomplete gamma function."""
    return _incomplete_gamma(a, x)[1]


def chdtrc(degrees: Any, x: Any) -> Any:
    """Return the probability that a chi-squared variable is larger than x."""
    return gammaincc(np.asarray(degrees) / 2, np.asarray(x) / 2)


def stdtr(degrees: Any, t: Any) -> Any:
    """Return the distribution function of Student's t."""
    degrees, t = np.broadcast_arrays(np.asarray(degrees, dtype=float), np.asarray(t, dtype=float))
    tail = 0.5 * _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t**2))
    return np.where(t > 0, 1 - tail, tail)


def _incomplete_gamma(a: Any, x: Any) -> tuple[Any, Any]:
    """Return the lower and the upper regularised incomplete gamma function."""
    a, x = (part.astype(float) for part in np.broadcast_arrays(a, x))
    with np.errstate(all="ignore"):
        usable = (a > 0) & (x >= 0) & np.isfinite(a) & np.isfinite(x)
        a_safe, x_safe = np.where(usable, a, 1.0), np.where(usable, x, 1.0)
        large = a_safe > LARGE_SHAPE
        wide = _by_expansion(np.where(large, a_safe, LARGE_SHAPE), np.where(large, x_safe, 1.0))
        few, points = np.where(large, 1.0, a_safe), np.where(large, 1.0, x_safe)
        factor = np.exp(few * np.log(points) - points - _lgamma(few))
        below = points < few + 1
        lower = factor * _series(few, np.where(below, points, 0.0))
        upper = factor * _fraction(few, np.where(below, few + 1, points))
        lower = np.where(points == 0, 0.0, lower)
        lower, upper = np.where(below, lower, 1 - upper), np.where(below, 1 - lower, upper)
        lower, upper = np.where(large, wide[0], lower), np.where(large, wide[1], upper)
        at_end = usable | (np.isinf(x) & (a > 0))
        lower, upper = np.where(np.isinf(x), 1.0, lower), np.where(np.isinf(x), 0.0, upper)
        return np.where(at_end, lower, np.nan), np.where(at_end, upper, np.nan)


def _series(a: Any, x: Any) -> Any:
    """Return the series of the lower function without its factor."""
    term = total = 1 / a
    for number in range(1, TERMS):
        term = term * x / (a + number)
        total = total + term
        if bool(np.all(term <= SMALL * total)):
            break
    return total


def _fraction(a: Any, x: Any) -> Any:
    """Return the continued fraction of the upper function without its factor, by Lentz's method."""
    b = x + 1 - a
    c, d = np.full_like(x, 1e300), 1 / b
    result = d
    for number in range(1, TERMS):
        numerator = -number * (number - a)
        b = b + 2
        d, c = 1 / _away_from_zero(numerator * d + b), _away_from_zero(b + numerator / c)
        result = result * (d * c)
        if bool(np.all(np.abs(d * c - 1) <= 4 * SMALL)):
            break
    return result


def _by_expansion(a: Any, x: Any) -> tuple[Any, Any]:
    """Return both functions for a large shape by Temme's uniform expansion, to the order 1 / a^2."""
    step = x / a - 1
    half_square = step - np.log1p(step)  # half the square of eta
    series = step**2 * (0.5 - step * (1 / 3 - step * (0.25 - step * (0.2 - step / 6))))
    half_square = np.where(np.abs(step) < 1e-3, series, half_square)
    eta = np.sign(step) * np.sqrt(2 * half_square)
    near = np.abs(eta) < 0.02
    safe_eta, safe_step = np.where(near, 1.0, eta), np.where(near, 1.0, step)
    first = np.where(near, -1 / 3 + eta / 12 - 2 * eta**2 / 135 + eta**3 / 864, 1 / safe_step - 1 / safe_eta)
    far = 1 / safe_eta**3 - 1 / safe_step**3 - 1 / safe_step**2 - 1 / (12 * safe_step)
    second = np.where(near, -1 / 540 - eta / 288 + 25 * eta**2 / 6048, far)
    rest = np.exp(-a * half_square) / np.sqrt(2 * np.pi * a) * (first + second / a)
    argument = eta * np.sqrt(a / 2)
    return 0.5 * _erfc(-argument) - rest, 0.5 * _erfc(argument) + rest


def _incomplete_beta(a: Any, b: float, x: Any) -> Any:
    """Return the regularised incomplete beta function."""
    swapped = x > (a + 1) / (a + b + 2)
    p, q, at = np.where(swapped, b, a), np.where(swapped, a, b), np.where(swapped, 1 - x, x)
    with np.errstate(all="ignore"):
        logs = p * np.log(at) + q * np.log1p(-at) + _lgamma(p + q) - _lgamma(p) - _lgamma(q)
        result = np.where(at > 0, np.exp(logs) * _beta_fraction(p, q, at) / p, 0.0)
    return np.where(swapped, 1 - result, result)


def _beta_fraction(a: Any, b: Any, x: Any) -> Any:
    c = np.ones_like(x)
    d = 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, TERMS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / _away_from_zero(1 + numerator * d), _away_from_zero(1 + numerator / c)
            result = result * (d * c)
        if bool(np.all(np.abs(d * c - 1) <= 4 * SMALL)):
            break
    return result


def _away_from_zero(values: Any) -> Any:
    return np.where(np.abs(values) < 1e-300, 1e-300, values)
