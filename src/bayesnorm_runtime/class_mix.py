"""Separate a changed mix of classes from changed inputs, and move statistics only by the latter.

A stream that shows one class for an hour has other statistics than the training data, although its images are not
shifted. So new statistics are compared with those that the *estimated class mix* explains (`ClassMoments`). The rest
is one affine map for each channel, z -> mean + shift + scale (z - mean), which is applied to the running statistics.
Layers are treated in running order, with the layers before them already adapted.

There are two hypotheses. One is that the mix is that of the training data; it is dropped if the predictions that follow
from it contradict it. The other is that the mix has changed. It is then estimated from the predictions of the adapted
network, which depend on the mix, in a few rounds that start with the predictions of the network as it is. If both
remain, the one whose predictions are more confident is chosen. Two shares keep chance out:

- The share of the observed mix. For K classes and n examples, X = n sum_k (p_k - f_k)^2 / f_k / (K - 1) is 1 on average
  if the classes are those of the training data, f. The share is (1 - 1/X) n / (n - 1), and at least 0.
- The share of the observed shift, 1 - 1/d for a mean squared standardised shift d, for the means and the log-variances
  of each layer; see `bayesnorm.adapt`. The expected noise includes the finite sample, and the uncertainty of the mix:
  if the network's expected error is e, the mix may be wrong by MIX_ERROR e, in the direction of any class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from . import special
from .batch_reference import Array, BatchReference
from .comparing import LEVEL, Shift
from .expected_error import ExpectedError, Validation, chosen_probability, expected_error

# How many times the network's expected error the estimated mix may be wrong.
MIX_ERROR = 10**0.5
# The largest number of rounds, and the change of the mix below which no further round follows.
ROUNDS, SETTLED = 3, 0.01
# A classifier is adapted if the estimated error falls by at least this much. On images like those of training it fell
# by at most 0.007, on most weakly corrupted ones by more than 0.02.
LEAST_GAIN = 0.01
# The mean confidence may fall by this share of the error's fall.
LESS_CONFIDENT = 0.1
# Below this p-value, predictions contradict the assumption that the mix is that of the training data.
CONTRADICTED = 0.001
# More examples than this are represented by as many, evenly spaced; they show the shift as well.
MOST_EXAMPLES = 512
# The inputs of a classifier have changed if their distance, given the class mix, is larger than this.
LARGE_DISTANCE = 1.25


@dataclass(frozen=True, eq=False)
class Explained:
    """The statistics that a class mix explains, in units of the running statistics; all (C,).

    Args:
        mean: Mean of the inputs.
        var: Their variance.
        mean_noise: Variance of the observed mean of n examples around `mean`.
        log_noise: Variance of the observed log-variance of n examples around log `var`.
    """

    mean: Array
    var: Array
    mean_noise: Array
    log_noise: Array


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """The moments of K classes at C channels; see `ClassStatistics`, whose arrays these are."""

    counts: Array
    loadings: Array
    rows: Array
    within: Array

    @property
    def shares(self) -> Array:
        """The class mix of the training data, (K,)."""
        return self.counts / self.counts.sum()

    def explained(self, eps: Array, mix: Array, uncertain: tuple[float, float], n: int) -> Explained:
        """Return what a class mix explains.

        Args:
            eps: The eps of the layers in units of their running variances, (C,).
            mix: The shares of the classes, (K,).
            uncertain: How far the mix is uncertain, as multiples of the variance between the classes: of those in
                `mix`, as if so many examples of n were a random choice, and of all classes in training.
            n: Number of examples.
        """
        a_rows, b_rows = np.split(self.rows.astype(float), 2, axis=1)
        loadings = self.loadings.astype(float)
        weights = mix @ loadings
        mean, square = weights @ a_rows, weights @ b_rows
        var = np.maximum(square - mean * mean, 1e-6) + eps
        var_a, covariance, var_b = self.within.astype(float)
        sampled = 1 / n + float((mix**2 / np.maximum(self.counts, 1)).sum())
        mean_noise = sampled * var_a
        log_noise = sampled * np.maximum(var_b - 4 * mean * covariance + 4 * mean * mean * var_a, 1e-12)
        # A class's contribution to the variance is linear in its moments: q = b - 2 mean a.
        for share, among in ((uncertain[0] / n, mix), (uncertain[1], self.shares)):
            if share > 0:
                spread = loadings - among @ loadings
                gram = spread.T @ (among[:, None] * spread)
                mean_noise = mean_noise + share * _quadratic(gram, a_rows)
                log_noise = log_noise + share * _quadratic(gram, b_rows - 2 * mean * a_rows)
        return Explained(mean, var, np.maximum(mean_noise, 1e-12), np.maximum(log_noise / var**2, 1e-12))


def _quadratic(gram: Array, rows: Array) -> Array:
    """Return r' G r for every column r of `rows`."""
    return ((gram @ rows) * rows).sum(0)


@dataclass(frozen=True, eq=False)
class MixShift:
    """The shift of new examples that their class mix does not explain.

    Args:
        shift: The shift, with the share of it that is taken as real.
        mix: The estimated shares of the classes, (K,).
        mix_share: The share of the observed mix in them, from 0 to 1; the rest is the mix of the training data.
        distances: Mean squared standardised shift of every part, (2L,); about 1 for training data.
        change: The same of the difference from the shift of earlier examples; 0 without them.
        before: Class probabilities of the network as it is, (n, K).
        after: Class probabilities with adapted statistics, (n, K).
        training_mix: The shares of the classes in training, (K,).
        validation: The record of validation data.
        alike: Whether there is only one example, or all of them are the same.
    """

    shift: Shift
    mix: Array
    mix_share: float
    distances: Array
    change: Array
    before: Array
    after: Array
    training_mix: Array
    validation: Validation | None
    alike: bool

    @property
    def input_distance(self) -> float:
        """The mean distance over all parts: about 1 or less if the mix explains the new statistics."""
        return float(self.distances.mean())

    @property
    def gain(self) -> float:
        """How much the error falls by adapting, according to the adapted network."""
        return float((self.after.max(1) - chosen_probability(self.before, self.after)).mean())

    @property
    def confidences(self) -> tuple[float, float]:
        """The mean confidence of the network as it is, and with adapted statistics."""
        return float(self.before.max(1).mean()), float(self.after.max(1).mean())

    @property
    def trusted(self) -> bool:
        """Whether adapted predictions are about as confident as before; if not, the mix was probably wrong.

        Predictions that hardly change are trusted as well. Those of a single example, or of copies of one, are not: its
        own content cannot be separated from a shift.
        """
        if self.alike:
            return False
        before, after = self.confidences
        return self.gain < LEAST_GAIN or after - before >= -LESS_CONFIDENT * self.gain

    @property
    def worthwhile(self) -> bool:
        """Whether adapting lowers the estimated error enough, by predictions that are trusted."""
        return self.gain >= LEAST_GAIN and self.trusted

    @property
    def decision(self) -> str:
        """Whether to adapt, and why, as a sentence."""
        if self.worthwhile:
            return f"Adapted, because the estimated error falls by {100 * self.gain:.1f} percentage points."
        reason = f"the estimated error would fall by {100 * self.gain:.1f} percentage points only"
        if self.alike:
            reason = "one example alone, or copies of one, do not show whether the inputs have shifted"
        elif self.gain >= LEAST_GAIN:
            before, after = self.confidences
            reason = (
                f"predictions would be less confident ({100 * after:.1f} % instead of {100 * before:.1f} % on average)"
            )
        return f"Left as it was, because {reason}."

    def expected_error(self) -> ExpectedError:
        """Return the estimated errors before and after adapting."""
        return expected_error(self.before, self.after, self.mix_share, self.validation, self.trusted)

    def cause(self, p_value: float) -> str | None:
        """Return what has changed: "inputs", "class mix" or both; None without drift or if unknown."""
        if p_value >= LEVEL:
            return None
        changed = ["inputs"] * (self.input_distance > LARGE_DISTANCE)
        changed += ["class mix"] * (mix_p_value(self.after, self.training_mix) < LEVEL)
        return " and ".join(changed) or None

    def decided(self, strength: float | None) -> tuple[Shift, str]:
        """Return the shift that is applied, and the decision with the expected error.

        Args:
            strength: The share of the shift that the caller wants; None if the estimated error decides.
        """
        shift, decision = self.shift, self.decision
        if strength is not None:
            decision = f"Applied {100 * strength:.0f} % of the shift, as strength={strength:g} says."
        elif not self.worthwhile:
            shift = replace(shift, strength=np.zeros_like(shift.strength))
        return shift, f"{decision} {self.expected_error()}"


@dataclass(frozen=True, eq=False)
class Targets:
    """What layers are compared with in a forward pass; see `bayesnorm.network.moved_statistics`.

    Args:
        expected: The coordinates that are explained, (2C,).
        noise: Variance of the shift, together with that of earlier examples, (2C,).
        fresh_noise: Variance of the shift of the new examples alone, (2C,).
        earlier: The shift of earlier examples, (2C,).
        weight: The share of earlier examples among all.
    """

    expected: Array
    noise: Array
    fresh_noise: Array
    earlier: Array
    weight: float


class Layerwise(ABC):
    """Runs new examples layer by layer, and applies to each the shift that a class mix does not explain.

    Args:
        batches: The training batches, which name the layers.
        classes: The moments of the classes.
        running: The network's own running statistics in coordinates, (2C,).
        rows: Number of new examples that are run.
        alike: Whether there is only one example, or all of them are the same.
        validation: The record of validation data.
        earlier: The shift of earlier examples, which count too.
    """

    def __init__(
        self,
        batches: BatchReference,
        classes: ClassMoments,
        running: Array,
        rows: int,
        alike: bool,
        validation: Validation | None,
        earlier: Shift | None,
    ) -> None:
        self._batches, self._classes, self._rows, self._alike = batches, classes, rows, alike
        self._validation, self._earlier = validation, earlier
        self._center, self._log_var = np.split(running, 2)

    @abstractmethod
    def run(self) -> Array:
        """Return class probabilities (n, K) with the statistics of the posterior."""

    @abstractmethod
    def run_towards(self, targets: Targets) -> tuple[Array, Array, Array]:
        """Run the network with every layer moved; return probabilities (n, K), the shift (2C,) and strengths (2L,)."""

    @property
    def training_mix(self) -> Array:
        """The shares of the classes in training, (K,)."""
        return self._classes.shares

    def targets(self, mix: Array, uncertain: tuple[float, float]) -> Targets:
        """Return what a class mix explains; `uncertain` is described in `ClassMoments.explained`."""
        layers, var = self._batches.layers, np.exp(self._log_var)
        eps = np.repeat([layer.eps for layer in layers], [layer.channels for layer in layers])
        explained = self._classes.explained(eps / var, mix, uncertain, self._rows)
        expected = np.concatenate([self._center + np.sqrt(var) * explained.mean, self._log_var + np.log(explained.var)])
        fresh = np.concatenate([var * explained.mean_noise, explained.log_noise])
        if self._earlier is None:
            return Targets(expected, fresh, fresh, np.zeros_like(fresh), 0.0)
        old, new = self._earlier.rows, self._rows
        noise = (old**2 * self._earlier.noise + new**2 * fresh) / (old + new) ** 2
        return Targets(expected, noise, fresh, self._earlier.shift, old / (old + new))

    def solution(self, before: Array, mix: Array, share: float, mix_error: float) -> MixShift:
        """Return the shift for a mix.

        Args:
            before: Class probabilities of the network as it is.
            mix: The shares of the classes.
            share: The share of the observed mix in them.
            mix_error: How far the mix may be wrong, in the direction of any class.
        """
        targets = self.targets(mix, (1 - share, mix_error**2))
        after, total, strength = self.run_towards(targets)
        distances, change = self._batches.means(total**2 / targets.noise), np.zeros(len(strength))
        rows = self._rows
        if self._earlier is not None:
            rows += self._earlier.rows
            difference = (total - targets.earlier) / (1 - targets.weight)
            change = self._batches.means(difference**2 / (targets.fresh_noise + self._earlier.noise))
        shift = Shift(rows, total, targets.noise, strength, np.split(targets.expected, 2)[0])
        return MixShift(
            shift, mix, share, distances, change, before, after, self.training_mix, self._validation, self._alike
        )


def estimate_mix(probs: Array, shares: Array) -> tuple[Array, float]:
    """Return the shares of the classes, (K,), and the share of the observed mix in them, given probabilities (n, K)."""
    n, observed, shares = len(probs), probs.mean(0), smoothed(shares)
    ratio = float(n * ((observed - shares) ** 2 / shares).sum() / max(1, len(shares) - 1))
    share = min(1.0, max(0.0, (1 - 1 / max(ratio, 1e-12)) * n / max(1, n - 1)))
    return share * observed + (1 - share) * shares, share


def solve(
    layerwise: Layerwise, before: Array | None = None, tell: Callable[[int, int], None] = lambda *_: None
) -> MixShift:
    """Estimate the class mix of new examples and the shift that it does not explain.

    Args:
        layerwise: Runs the examples.
        before: Class probabilities of the network as it is, if they are there already, (n, K).
        tell: Called with the number of finished forward passes, and how many there are at most.
    """
    shares = layerwise.training_mix
    before = layerwise.run() if before is None else before
    tell(1, ROUNDS + 2)
    solutions = [layerwise.solution(before, shares, 0.0, 0.0)]
    if min(mix_p_value(before, shares), mix_p_value(solutions[0].after, shares)) < LEVEL:
        after = before
        for _ in range(ROUNDS):
            tell(1 + len(solutions), ROUNDS + 2)
            mix, share = estimate_mix(after, shares)
            if len(solutions) > 1 and float(np.abs(mix - solutions[-1].mix).max()) < SETTLED:
                break
            error = float(1 - after.max(1).mean())
            solutions.append(layerwise.solution(before, mix, share, MIX_ERROR * share * error))
            after = solutions[-1].after
    same_mix = mix_p_value(solutions[0].after, shares) >= CONTRADICTED
    return max(solutions[0 if same_mix else -1], solutions[-1], key=lambda solution: solution.confidences[1])


def mix_p_value(probs: Array, shares: Array) -> float:
    """Return the probability that as many examples with these shares of classes differ at least as much from them."""
    shares = smoothed(shares)
    ratio = float(len(probs) * ((probs.mean(0) - shares) ** 2 / shares).sum())
    return float(special.chdtrc(len(shares) - 1, ratio))


def smoothed(shares: Array) -> Array:
    """Return shares without zeros, which sum to 1."""
    return (shares + 1e-6) / (shares + 1e-6).sum()


def chosen_examples(rows: int) -> Array:
    """Return the indices of the examples that represent all."""
    return np.rint(np.linspace(0, rows - 1, min(rows, MOST_EXAMPLES))).astype(np.int64)


def joined_shift(shifts: Sequence[MixShift]) -> MixShift | None:
    """Return the shift that several networks see together: the mean of their mixes, distances and probabilities."""
    if not shifts:
        return None

    def mean(name: str) -> Any:
        return np.mean([getattr(shift, name) for shift in shifts], 0)

    names = ("mix", "before", "after", "training_mix")
    distances = np.concatenate([shift.distances for shift in shifts])
    return replace(
        shifts[0], **{name: mean(name) for name in names}, mix_share=float(mean("mix_share")), distances=distances
    )
