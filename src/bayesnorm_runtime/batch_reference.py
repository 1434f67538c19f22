"""How the statistics of training batches vary, as a reference for new data: the arithmetic on arrays of NumPy.

`bayesnorm/posterior/training_batches.py` says what is recorded and why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from . import special

Array = Any
"""An array of NumPy."""

# Larger squared deviations only count by their logarithm. Otherwise a channel that rarely fires could decide alone.
PLAIN_UP_TO = 100.0
# Parts with at most this width do not vary, such as variances of single examples.
NO_WIDTH = 1e-6
# Distributions with a smaller skewness are treated as normal.
LEAST_SKEW = 1e-5


@dataclass(frozen=True)
class BatchNormLayer:
    """A batch-norm layer, as the other packages see it.

    Args:
        name: Its name in `named_modules`.
        channels: Number of channels that it normalises.
        eps: The number that it adds to variances.
    """

    name: str
    channels: int
    eps: float


class Expected(NamedTuple):
    """The expected statistics of training examples.

    Args:
        center: Mean coordinates, (2C,).
        variance: Variance of new examples around the centre, (2C,).
        varies: Which parts vary at all at this size, (2L,).
    """

    center: Array
    variance: Array
    varies: Array


@dataclass(frozen=True, eq=False)
class BatchReference:
    """The arrays of `TrainingBatches`, in double precision, and what follows from them."""

    layers: Sequence[BatchNormLayer]
    rows: int
    sizes: Sequence[int]
    counts: Sequence[int]
    centers: Array
    variance: Array
    widths: Array
    logs: Array
    moments: Array
    shares: Array

    @property
    def batch_size(self) -> int:
        """The batch size M of the fit."""
        return self.sizes[-1]

    @cached_property
    def channels(self) -> Array:
        """Number of channels of every part, (2L,)."""
        return np.array([layer.channels for layer in self.layers] * 2)

    @cached_property
    def _starts(self) -> Array:
        return np.concatenate([[0], np.cumsum(self.channels)[:-1]])

    def means(self, values: Array) -> Array:
        """Return the mean over the channels of every part, (2L,), of values (2C,)."""
        return np.add.reduceat(values, self._starts) / self.channels

    def spread(self, values: Array) -> Array:
        """Return every part's value for all of its channels, (2C,)."""
        return np.repeat(values, self.channels)

    def distances(self, standardised: Array, varies: Array) -> Array:
        """Return the distance of every part, NaN for parts that do not vary, and their mean, (2L + 1,).

        Args:
            standardised: Squared deviations divided by their variance, (2C,). Large ones are damped.
            varies: Which parts vary, (2L,).
        """
        damped = np.minimum(standardised, PLAIN_UP_TO) + PLAIN_UP_TO * np.log(np.maximum(standardised / PLAIN_UP_TO, 1))
        parts = np.where(varies, self.means(damped), np.nan)
        return np.append(parts, parts[varies].mean() if varies.any() else np.nan)

    def expected(self, size: float, groups: int) -> Expected:
        """Return the expected mean statistics of some groups of examples, interpolated between the recorded sizes.

        The variance includes the errors of the centre, from the finite training data and the number of batches.
        """
        below, above, share = self._between(size)
        # If a part does not vary in smaller batches, as variances of one example, only the larger size is used.
        varies = (self.widths[below] > NO_WIDTH) | (share <= 0)
        center = _between(self.centers[below], self.centers[above], self.spread(np.where(varies, share, 1.0)))
        widths = np.log(np.maximum(self.widths, NO_WIDTH))
        width = np.exp(_between(widths[below], widths[above], np.where(varies, self._log_share(size), 1.0)))
        # Batches are sampled without replacement, which reduces the variance.
        finite = (self.rows - 1) / max(1, self.rows - self.batch_size)
        looked = above if share > 0.5 else below
        fresh = width * (1 / (size * groups) + 1 / (self.sizes[looked] * self.counts[looked]))
        times = self.spread(fresh + self.shares / self.rows)
        return Expected(center, self.variance * (self.batch_size * finite) * times, width > 2 * NO_WIDTH)

    def effective_channels(self, size: float, groups: int) -> Array:
        """Return how many independent channels would give distances that vary as much, (2L + 1,).

        The distance over k independent normal channels is a chi-squared variable of k degrees of freedom, over k.
        """
        with np.errstate(divide="ignore"):
            if groups == 1:
                return np.clip(2 / self._logs(size)[:, 1] ** 2, 1, 1e6)
            mean, variance, _, limit, _ = self.moments.T
            return np.clip(2 * mean**2 / (limit + np.maximum(variance - limit, 0) / groups), 1, 1e6)

    def tail(self, distances: Array, size: float, groups: int) -> Array:
        """Return the probability that training examples are as far or farther, (2L + 1,); NaN without variation."""
        if groups == 1:
            with np.errstate(divide="ignore", invalid="ignore"):
                mean, std, skew = self._logs(size).T
                return log_tail(np.log(distances), mean, std, skew, self.looked_at(size))
        mean, variance, third, limit_variance, limit_third = self.moments.T
        variance = limit_variance + np.maximum(variance - limit_variance, 0) / groups
        third = limit_third + np.maximum(third - limit_third, 0) / groups**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return pearson_tail((distances - mean) / np.sqrt(variance), third / variance**1.5)

    def looked_at(self, size: float) -> int:
        """Return the number of recorded batches of about this size."""
        below, above, _ = self._between(size)
        return self.counts[above if self._log_share(size) > 0.5 else below]

    def _between(self, size: float) -> tuple[int, int, float]:
        """Return the indices of the two neighbouring sizes, and the relative position between them in 1 / size."""
        if len(self.sizes) == 1:
            return 0, 0, 1.0
        above = next((i for i, present in enumerate(self.sizes) if present >= size), len(self.sizes) - 1)
        above = max(above, 1)
        low, high = 1 / self.sizes[above - 1], 1 / self.sizes[above]
        share = (1 / size - low) / (high - low)
        return above - 1, above, max(share, 0.0)  # sizes below the smallest recorded one are treated like it

    def _logs(self, size: float) -> Array:
        """Return mean, standard deviation and skewness of log distances at a size, (2L + 1, 3)."""
        below, above, share = self._between(size)
        varies = (self.logs[below, :, 1:2] > 0) | (share <= 0)
        return _between(self.logs[below], self.logs[above], np.where(varies, self._log_share(size), 1.0))

    def _log_share(self, size: float) -> float:
        """Return the relative position between the two neighbouring sizes in log size."""
        below, above, _ = self._between(size)
        if below == above:
            return 1.0
        low, high = self.sizes[below], self.sizes[above]
        return min(max(math.log(size / low) / math.log(high / low), 0.0), 1.0)


def _between(low: Array, high: Array, share: Array) -> Array:
    """Return low for a share of 0, and high for a share of 1."""
    return low + share * (high - low)


def gamma_shape(std: Any) -> Any:
    """Return the approximate shape of a gamma variable whose logarithm has this standard deviation."""
    return (1 + (1 + 2 * std**2) ** 0.5) / (2 * std**2)  # solves 1/k + 1/(2 k^2) = variance, about trigamma(k)


def log_tail(logs: Array, mean: Array, std: Array, skew: Array, count: int) -> Array:
    """Return tail probabilities of distributions of logarithms, with moments estimated from `count` batches.

    For negative skewness the logarithm of a gamma variable is used, because a Pearson III distribution would be bounded
    on the right.
    """
    # Moments of few batches are uncertain, so deviations count less, as with Student's t.
    standard = (logs - mean) / std
    tail = np.maximum(special.stdtr(count - 1, -standard / math.sqrt(1 + 1 / count)), 1e-300)
    standard = np.where(standard > 0, -special.ndtri(tail), standard)
    shape = gamma_shape(std)
    gamma = special.gammaincc(shape, np.exp(std * standard + special.digamma(shape)))
    return np.where(skew < 0, gamma, pearson_tail(standard, np.maximum(skew, 0)))


def pearson_tail(standard: Array, skew: Array) -> Array:
    """Return tail probabilities of Pearson III distributions with mean 0, standard deviation 1 and these skewnesses."""
    most = 2 * math.sqrt(2)  # beyond, half of the probability would lie at the lower end
    skew = np.clip(skew, -most, most)
    some = np.where(np.abs(skew) < LEAST_SKEW, LEAST_SKEW, skew)
    shape = 4 / some**2
    at = np.maximum(shape + 2 * standard / some, 0)
    above = np.where(some > 0, special.gammaincc(shape, at), special.gammainc(shape, at))
    return np.where(np.abs(skew) < LEAST_SKEW, special.ndtr(-standard), above)
