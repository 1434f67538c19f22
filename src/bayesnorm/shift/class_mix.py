"""Separate a changed mix of classes from changed inputs, and move statistics only by the latter.

A stream that shows one class for an hour has other statistics than the training data, although its images are not
shifted. So new statistics are compared with those that the *estimated class mix* explains (`ClassStatistics`). The rest
is one affine map for each channel, z -> mean + shift + scale (z - mean), which is applied to the running statistics.
Layers are treated in running order, with the layers before them already adapted.

There are two hypotheses. One is that the mix is that of the training data; it is dropped if the predictions that follow
from it contradict it. The other is that the mix has changed. It is then estimated from the predictions of the adapted
network, which depend on the mix, in a few rounds that start with the predictions of the network as it is. If both
remain, the one whose predictions are more confident is chosen. Two shares keep chance out:

- The share of the observed mix. For K classes and n examples, X = n sum_k (p_k - f_k)^2 / f_k / (K - 1) is 1 on average
  if the classes are those of the training data, f. The share is (1 - 1/X) n / (n - 1), and at least 0.
- The share of the observed shift, 1 - 1/d for a mean squared standardised shift d, for the means and the log-variances
  of each layer; see `adapt`. The expected noise includes the finite sample, and the uncertainty of the mix: if the
  network's expected error is e, the mix may be wrong by MIX_ERROR e, in the direction of any class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy
import torch
from torch import Tensor

from ..network import mean_and_var, no_moments, select_output
from ..posterior import Adaptation, AdaptedPosterior, BatchNormPosterior, Validation, class_probabilities
from ..progress import long_progress
from .comparison import all_alike, require_batches, require_finite_statistics, row_statistics
from .expected_error import ExpectedError, chosen_probability, expected_error

# How many times the network's expected error the estimated mix may be wrong.
MIX_ERROR = 10**0.5
# The largest number of rounds, and the change of the mix below which no further round follows.
ROUNDS, SETTLED = 3, 0.01
# Below this p-value of predictions, the mix differs from that of the training data.
LEVEL = 0.05
# A classifier is adapted if the estimated error falls by at least this much. On images like those of training it fell
# by at most 0.007, on most weakly corrupted ones by more than 0.02.
LEAST_GAIN = 0.01
# The mean confidence may fall by this share of the error's fall.
LESS_CONFIDENT = 0.1
# Below this p-value, predictions contradict the assumption that the mix is that of the training data.
CONTRADICTED = 0.001
# More examples than this are represented by as many, evenly spaced; they show the shift as well.
MOST_EXAMPLES = 512


@dataclass(frozen=True)
class MixShift:
    """The shift of new examples that their class mix does not explain.

    Args:
        adaptation: The shift, with the share of it that is taken as real.
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

    adaptation: Adaptation
    mix: Tensor
    mix_share: float
    distances: Tensor
    change: Tensor
    before: Tensor
    after: Tensor
    training_mix: Tensor
    validation: Validation | None
    alike: bool

    @property
    def input_distance(self) -> float:
        """The mean distance over all parts: about 1 or less if the mix explains the new statistics."""
        return float(self.distances.mean())

    @property
    def gain(self) -> float:
        """How much the error falls by adapting, according to the adapted network."""
        return float((self.after.amax(1) - chosen_probability(self.before, self.after)).mean())

    @property
    def confidences(self) -> tuple[float, float]:
        """The mean confidence of the network as it is, and with adapted statistics."""
        return float(self.before.amax(1).mean()), float(self.after.amax(1).mean())

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


def estimate_mix(probs: Tensor, shares: Tensor) -> tuple[Tensor, float]:
    """Return the shares of the classes, (K,), and the share of the observed mix in them, given probabilities (n, K)."""
    n, observed, shares = len(probs), probs.double().mean(0), smoothed(shares)
    ratio = float(n * ((observed - shares).square() / shares).sum() / max(1, len(shares) - 1))
    share = min(1.0, max(0.0, (1 - 1 / max(ratio, 1e-12)) * n / max(1, n - 1)))
    return share * observed + (1 - share) * shares, share


def estimate_shift(
    posterior: BatchNormPosterior,
    x: Any,
    strength: float | None = None,
    earlier: Adaptation | None = None,
    before: Tensor | None = None,
) -> MixShift:
    """Estimate the shift of new examples.

    Args:
        posterior: A posterior with class statistics. The shift of an adapted one is that from the training data.
        x: The examples.
        strength: The share of the shift to apply, instead of an estimated one.
        earlier: The adaptation to earlier examples, which count too.
        before: Class probabilities of the network as it is, if they are there already, (n, K).
    """
    classes = posterior.class_statistics
    assert classes is not None
    layerwise, shares = Layerwise(posterior, x, strength, earlier), classes.shares
    with long_progress("class mix") as tell:
        before = layerwise.run() if before is None else before
        tell(1, ROUNDS + 2)
        solutions = [layerwise.solution(before, shares, 0.0, 0.0)]
        if min(mix_p_value(before, shares), mix_p_value(solutions[0].after, shares)) < LEVEL:
            after = before
            for _ in range(ROUNDS):
                tell(1 + len(solutions), ROUNDS + 2)
                mix, share = estimate_mix(after, shares)
                if len(solutions) > 1 and float((mix - solutions[-1].mix).abs().max()) < SETTLED:
                    break
                error = float(1 - after.amax(1).mean())
                solutions.append(layerwise.solution(before, mix, share, MIX_ERROR * share * error))
                after = solutions[-1].after
    same_mix = mix_p_value(solutions[0].after, shares) >= CONTRADICTED
    return max(solutions[0 if same_mix else -1], solutions[-1], key=lambda solution: solution.confidences[1])


def mix_p_value(probs: Tensor, shares: Tensor) -> float:
    """Return the probability that as many examples with these shares of classes differ at least as much from them."""
    shares = smoothed(shares)
    ratio = float(len(probs) * ((probs.double().mean(0) - shares).square() / shares).sum())
    return float(scipy.special.chdtrc(len(shares) - 1, ratio))


def smoothed(shares: Tensor) -> Tensor:
    """Return shares without zeros, which sum to 1."""
    return (shares + 1e-6) / (shares + 1e-6).sum()


def joined_shift(shifts: Sequence[MixShift]) -> MixShift | None:
    """Return the shift that several networks see together: the mean of their mixes, distances and probabilities."""
    if not shifts:
        return None

    def mean(name: str) -> Any:
        return torch.stack([torch.as_tensor(getattr(shift, name)) for shift in shifts]).mean(0)

    names = ("mix", "before", "after", "training_mix")
    distances = torch.cat([shift.distances for shift in shifts])
    return replace(
        shifts[0], **{name: mean(name) for name in names}, mix_share=float(mean("mix_share")), distances=distances
    )


class _LayerShift(NamedTuple):
    """The shift at one layer: pairs are of means and of log-variances, in coordinates.

    `change` is the mean squared difference from the earlier shift in units of its noise; 0 without an earlier one.
    """

    shift: tuple[Tensor, Tensor]
    noise: tuple[Tensor, Tensor]
    strength: tuple[float, float]
    distance: tuple[float, float]
    change: tuple[float, float]
    reference: Tensor


class Layerwise:
    """Runs new examples layer by layer, and applies to each the shift that a class mix does not explain."""

    def __init__(
        self,
        posterior: BatchNormPosterior,
        x: Any,
        strength: float | None = None,
        earlier: Adaptation | None = None,
    ) -> None:
        assert posterior.class_statistics is not None
        self._posterior, self._classes = posterior, posterior.class_statistics
        self._strength, self._earlier = strength, earlier
        self._network = row_statistics(posterior)
        x = self._network.input(x)
        self._x = x[
            torch.linspace(0, len(x) - 1, min(len(x), MOST_EXAMPLES)).round().long().to(posterior.executable.device)
        ]
        self._state = posterior.state(posterior.location) if isinstance(posterior, AdaptedPosterior) else {}
        validation, self._likelihood = posterior.validation, posterior.likelihood
        if validation is not None:
            self._likelihood = self._likelihood.with_noise(torch.tensor(validation.temperature))
        layers = require_batches(posterior).layers
        stops = np.cumsum([layer.channels for layer in layers]).tolist()
        self._parts = {
            layer.name: slice(stop - layer.channels, stop) for layer, stop in zip(layers, stops, strict=True)
        }
        self._mix: Tensor | None = None
        self._uncertain = (1.0, 0.0)
        self._layers: list[_LayerShift] = []

    @staticmethod
    def inputs(posterior: BatchNormPosterior, x: Any) -> Any:
        """Return examples as the network takes them."""
        return row_statistics(posterior).input(x)

    def run(self, mix: Tensor | None = None, uncertain: tuple[float, float] = (1.0, 0.0)) -> Tensor:
        """Return class probabilities (n, K) with statistics adapted to a mix, or with those of the posterior.

        Args:
            mix: The shares of the classes, (K,); None for the posterior's own statistics.
            uncertain: How far the mix is uncertain, see `ClassStatistics.explained`.
        """
        self._mix, self._uncertain, self._layers = mix, uncertain, []
        measure = no_moments if mix is None else mean_and_var
        output = self._network.run_rule(self._x, self._statistics, measure)
        f = select_output(output, self._posterior.executable.output, len(self._x))
        require_finite_statistics(f)
        probs = class_probabilities(self._likelihood, f)
        assert probs is not None
        return probs.double().cpu()

    def _statistics(self, name: str, moments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the statistics that a layer normalises by, given the moments of its input."""
        running_mean, running_var, eps = self._network.running(name)
        if self._mix is None:
            return (
                self._state.get(f"{name}.running_mean", running_mean),
                self._state.get(f"{name}.running_var", running_var),
            )
        part = self._parts[name]
        center, var = running_mean.double().cpu(), running_var.double().cpu() + eps
        scale = var.sqrt()
        explained = self._classes.explained(part, eps / var, self._mix, self._uncertain, len(self._x))
        observed = moments[0].double().cpu(), (moments[1].double().cpu() + eps).log()
        expected = center + scale * explained.mean, (var * explained.var).log()
        measured, change = self._with_earlier(
            part,
            (observed[0] - expected[0], observed[1] - expected[1]),
            (var * explained.mean_noise, explained.log_noise),
        )
        distance = tuple(float((shift.square() / noise).mean()) for shift, noise in measured)
        strength = tuple(1 - 1 / max(d, 1.0) if self._strength is None else self._strength for d in distance)
        (shift, noise), (log_shift, log_noise) = measured
        self._layers.append(
            _LayerShift((shift, log_shift), (noise, log_noise), strength, distance, change, expected[0])  # type: ignore[arg-type]
        )
        factor = (0.5 * strength[1] * log_shift).exp()
        new_mean = expected[0] + strength[0] * shift + factor * (center - expected[0])
        return new_mean.to(running_mean), (var * factor.square() - eps).clamp_min(0).to(running_var)

    def _with_earlier(
        self, part: slice, shifts: tuple[Tensor, Tensor], noises: tuple[Tensor, Tensor]
    ) -> tuple[list[tuple[Tensor, Tensor]], tuple[float, float]]:
        """Return the shift of means and of log-variances, each with its noise, together with earlier examples."""
        pairs = list(zip(shifts, noises, strict=True))
        if self._earlier is None:
            return pairs, (0.0, 0.0)
        old, new = self._earlier.rows, len(self._x)
        total, earlier = old + new, self._earlier
        before = [
            (shift[part], noise[part])
            for shift, noise in zip(earlier.shift.double().chunk(2), earlier.noise.double().chunk(2), strict=True)
        ]
        change = [
            float(((shift - shift_0).square() / (noise + noise_0)).mean())
            for (shift, noise), (shift_0, noise_0) in zip(pairs, before, strict=True)
        ]
        return [
            ((old * shift_0 + new * shift) / total, (old**2 * noise_0 + new**2 * noise) / total**2)
            for (shift, noise), (shift_0, noise_0) in zip(pairs, before, strict=True)
        ], (change[0], change[1])

    def solution(self, before: Tensor, mix: Tensor, share: float, mix_error: float) -> MixShift:
        """Return the shift for a mix.

        Args:
            before: Class probabilities of the network as it is.
            mix: The shares of the classes.
            share: The share of the observed mix in them.
            mix_error: How far the mix may be wrong, in the direction of any class.
        """
        after, posterior = self.run(mix, (1 - share, mix_error**2)), self._posterior
        return MixShift(
            self.adaptation(),
            mix,
            share,
            self._by_part([layer.distance for layer in self._layers]),
            self._by_part([layer.change for layer in self._layers]),
            before,
            after,
            self._classes.shares,
            posterior.validation,
            len(self._x) == 1 or all_alike(self._x),
        )

    @staticmethod
    def _by_part(pairs: list[tuple[float, float]]) -> Tensor:
        """Return the values of all means, then of all log-variances, (2L,)."""
        return torch.tensor(pairs, dtype=torch.float64).T.flatten()

    def adaptation(self) -> Adaptation:
        """Return the shift in the latest forward pass."""
        halves = range(2)
        for layer in self._layers:
            require_finite_statistics(torch.stack(layer.shift))
        return Adaptation(
            len(self._x) + (0 if self._earlier is None else self._earlier.rows),
            torch.cat([layer.shift[half] for half in halves for layer in self._layers]),
            torch.cat([layer.noise[half] for half in halves for layer in self._layers]),
            torch.tensor([layer.strength[half] for half in halves for layer in self._layers], dtype=torch.float64),
            torch.cat([layer.reference for layer in self._layers]),
        )
