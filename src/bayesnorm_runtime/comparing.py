"""Compare the statistics of new examples with those of training batches: drift, and how much of a shift is real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import special
from .batch_reference import Array, BatchReference

LEVEL = 0.05
"""The false-alarm rate of the drift test: below this p-value, data differ from the training distribution."""

# The share of the false-alarm rate that goes to the single most different layer; the rest goes to the distance over
# all layers. The share is smaller if fewer than OF_BATCHES batches show the tail of the distribution.
ONE_LAYER, OF_BATCHES = 0.1, 256


@dataclass(frozen=True, eq=False)
class Shift:
    """The shift that new examples show in all recorded layers; 2C coordinates, 2L parts.

    Args:
        rows: Number of new examples, n.
        shift: Difference of their statistics from those of n training examples, (2C,).
        noise: Variance of this difference for training examples, (2C,).
        strength: The share of the shift that is applied, (2L,).
        reference: The means that the classes of the new examples explain, (C,). A changed spread stretches the
            distances from them. None: from the network's own means.
    """

    rows: int
    shift: Array
    noise: Array
    strength: Array
    reference: Array | None = None

    def moved(self, batches: BatchReference, center: Array | None) -> Array:
        """Return how far the centre (2C,) of a posterior moves, (2C,); it is needed with a `reference`."""
        moved = batches.spread(self.strength) * self.shift
        if self.reference is None or center is None:
            return moved
        by_mean, by_log_var = np.split(moved, 2)
        stretched = np.expm1(0.5 * by_log_var) * (np.split(center, 2)[0] - self.reference)
        return np.concatenate([by_mean + stretched, by_log_var])

    def widening(self, batches: BatchReference, scale: float) -> Array:
        """Return the factor of the fluctuations, which include the uncertainty of the move, (2C,).

        Args:
            batches: The training batches.
            scale: The posterior's variance divided by that of training batches, M / M'.
        """
        variance = batches.variance * scale
        return np.sqrt(1 + batches.spread(self.strength) * self.noise / variance)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The difference between the statistics of n new examples and of training examples; 2C coordinates, 2L parts.

    Args:
        batches: The training batches.
        rows: The number of new examples, n.
        size: The mean number of examples per group; every group is normalised separately.
        groups: The number of groups.
        shift: The mean of the new statistics minus the expected value, (2C,).
        noise: The variance of `shift` for training examples, (2C,).
        varies: Which parts vary at this group size, (2L,).
        alike: Whether all new examples are the same.
    """

    batches: BatchReference
    rows: int
    size: float
    groups: int
    shift: Array
    noise: Array
    varies: Array
    alike: bool

    @property
    def standardised(self) -> Array:
        """Squared deviations divided by their variance, (2C,); 1 on average for training examples."""
        return self.shift**2 / self.noise

    @classmethod
    def from_statistics(cls, batches: BatchReference, values: Array, rows: int, alike: bool) -> Comparison:
        """Return the comparison for the coordinates of every group, (groups, 2C)."""
        size, groups = rows / len(values), len(values)
        expected = batches.expected(size, groups)
        shift = values.mean(0) - expected.center
        return cls(batches, rows, size, groups, shift, expected.variance, expected.varies, alike)

    def from_present(self, moved: Array, strength: Array, noise: Array) -> Comparison:
        """Return the comparison with data that a posterior was adapted to; the arguments are those of its shift."""
        left = self.batches.spread(strength) * noise
        return replace(self, shift=self.shift - moved, noise=self.noise + left)

    def with_earlier(self, earlier: Any) -> Comparison:
        """Return the comparison of new examples together with those of an earlier shift (`rows` and `shift`)."""
        rows = earlier.rows + self.rows
        shift = (earlier.rows * np.asarray(earlier.shift) + self.rows * self.shift) / rows
        groups = max(1, round(rows / self.batches.batch_size))
        expected = self.batches.expected(rows / groups, groups)
        return replace(
            self,
            rows=rows,
            size=rows / groups,
            groups=groups,
            shift=shift,
            noise=expected.variance,
            varies=expected.varies,
        )

    def adaptation(self, strength: float | None) -> Shift:
        """Return the shift with the share of it that is applied; None estimates this share."""
        shares = believed(self) if strength is None else np.where(self.varies, strength, 0.0)
        return Shift(self.rows, self.shift, self.noise, shares)


@dataclass(frozen=True, eq=False)
class LayerDrift:
    """The drift at one batch-norm layer, with the layers before it normalised by the new data.

    Args:
        name: The layer's name in the network.
        p_value: The probability that as many training examples differ at least this much at this layer.
        mean_shift: The shift of the channel means in standard deviations of the channels in training: the root mean
            square over channels, minus the part expected by chance.
        spread_ratio: The channels' standard deviation divided by that in training, geometric mean over channels.
    """

    name: str
    p_value: float
    mean_shift: float
    spread_ratio: float


@dataclass(frozen=True, eq=False)
class DriftTest:
    """The p-value of all layers together, the mean squared standardised deviation, and one result per layer."""

    p_value: float
    distance: float
    layers: tuple[LayerDrift, ...]


def group_sizes(rows: int, batch_size: int) -> list[tuple[int, int]]:
    """Return into how many groups of which size new examples are divided: pairs of a size and a number of groups."""
    groups = max(1, min(round(rows / batch_size), rows // 2))  # a group of one has no variance
    fewer, more = divmod(rows, groups)  # `more` groups have one example more than the others
    return [(size, count) for size, count in ((fewer + 1, more), (fewer, groups - more)) if count]


def drift_test(comparison: Comparison) -> DriftTest | None:
    """Return the test whether new examples come from the training distribution; None if training data do not vary."""
    batches = comparison.batches
    distances = batches.distances(comparison.standardised, comparison.varies)
    tails = batches.tail(distances, comparison.size, comparison.groups)
    if bool(np.isnan(tails).all()):
        return None
    # A drift that later layers normalise away, such as a change of contrast, shows at one layer only.
    farthest = float(np.nanmin(tails[:-1])) * int(comparison.varies.sum())
    share = ONE_LAYER * min(1.0, batches.looked_at(comparison.size) / OF_BATCHES)
    p_value = min(1.0, float(tails[-1]) / (1 - share), farthest / share)
    return DriftTest(p_value, float(distances[-1]), _layers(comparison, tails))


def _layers(comparison: Comparison, tails: Array) -> tuple[LayerDrift, ...]:
    batches = comparison.batches
    count = len(batches.layers)
    spread = np.exp(0.5 * np.split(batches.centers[-1], 2)[1])
    mean_shift, log_shift = np.split(comparison.shift, 2)
    beyond = (mean_shift**2 - np.split(comparison.noise, 2)[0]) / spread**2
    tails_or_one = np.where(np.isnan(tails[:-1]), 1.0, tails[:-1])
    together = np.minimum(1, 2 * np.minimum(tails_or_one[:count], tails_or_one[count:]))
    means = batches.means(np.concatenate([beyond, log_shift]))
    shifts = np.sqrt(np.maximum(means[:count], 0))
    ratios = np.where(comparison.varies[count:], np.exp(0.5 * means[count:]), 1.0)
    names = [layer.name for layer in batches.layers]
    return tuple(map(LayerDrift, names, together.tolist(), shifts.tolist(), ratios.tolist()))


def first_layer(p_value: float, layers: Sequence[LayerDrift]) -> str | None:
    """Return the first layer that differs significantly; None if the data do not differ, or no single layer does."""
    if p_value >= LEVEL:
        return None
    adjusted = holm([layer.p_value for layer in layers])
    return next((layer.name for layer, p in zip(layers, adjusted, strict=True) if p < LEVEL), None)


def holm(p_values: Sequence[float] | Array) -> Array:
    """Return p-values adjusted by Holm's method, which bounds the probability of any false alarm by the level."""
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return adjusted


def believed(comparison: Comparison) -> Array:
    """Return the share of the observed shift that is taken as real, for every part, (2L,); see `bayesnorm.adapt`."""
    batches = comparison.batches
    distances = batches.means(comparison.standardised)
    overall = float(batches.distances(comparison.standardised, comparison.varies)[-1])
    channels = float(batches.effective_channels(comparison.size, comparison.groups)[-1])
    with np.errstate(divide="ignore"):
        shares = np.maximum(0, 1 - 1 / distances)
    return np.where(comparison.varies, shares * drift_probability(overall, channels), 0.0)


def drift_probability(distance: float, channels: float) -> float:
    """Return the probability that the data have drifted, given their distance T over k effective channels.

    With u = 1 / (1 + t^2), u k T is a chi-squared variable with k degrees of freedom. The density of T is then
    proportional to u^(k/2) exp(-u k T / 2). Without drift u is 1; with drift, the density is averaged over u in [0, 1].
    """
    shape, scaled = channels / 2 + 1, channels * max(distance, 1e-12) / 2
    # The average over u is an incomplete gamma function. Logarithms, because its factors overflow.
    log_average = float(special.gammaln(shape)) - shape * np.log(scaled) + _log_gammainc(shape, scaled)
    log_odds = log_average + scaled
    return float(1 / (1 + np.exp(-log_odds))) if log_odds > -700 else 0.0


def _log_gammainc(shape: float, scaled: float) -> float:
    below = float(special.gammainc(shape, scaled))
    if below > 1e-280:
        return float(np.log(below))
    # The leading term of the series, for values too small for gammainc.
    return float(shape * np.log(scaled) - scaled - float(special.gammaln(shape + 1)))
