"""Estimate the error of a classifier on data without labels.

- Before adapting: one minus the mean probability that the *adapted* network gives to the answer of the unadapted one.
- After adapting: the share of examples that are less confident than a threshold. As many validation examples are below
  it as are wrong (ATC; Garg et al. 2022). The same is done with the entropy, and the two shares are averaged. Adapted
  probabilities are then softened until their mean confidence agrees, because they are too confident under a strong
  shift. Without validation data: one minus the mean confidence.

If the adapted network is not trusted, the error before adapting may be anything from what the network's own confidence
says to what the adapted network says; the estimate is the middle. After adapting it is the same, since `adapt` then
leaves the network as it is.

An interval is 80 % of a normal distribution whose variance has two parts: the chance of n examples, the mean of
p (1 - p) / n, and a model error that grows with the estimated rise of the error, and more so if the class mix has
changed. `MODEL_ERROR` was fitted to a ResNet-20 on corrupted images; `experiments shift streams` checks it on others.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .batch_reference import Array
from .text import format_percent

NOT_ESTIMATED = (
    "The error on these examples is not estimated: without targets, this is possible only for classifiers with one "
    "class per example. A regression underestimates its error on shifted inputs, so measure it with new targets."
)
"""The sentence in place of an expected error."""

# Standard deviation of the model error: a constant, and factors of the rise of the error for the same class mix and for
# a class mix that has changed completely.
MODEL_ERROR = (0.03, 0.04, 0.3)
# The range of the temperature that softens adapted probabilities.
SHARPEST, SOFTEST = 0.3, 6.0
# The 90 % quantile of a normal distribution, for an interval of 80 %.
WIDTH = 1.2816


@dataclass(frozen=True)
class Validation:
    """The error of a network without sampling on validation data.

    Args:
        rows: Number of validation examples.
        error: The share of them with another class than the predicted one.
        temperature: The temperature that fits the network without sampling best.
        least_confidence: As many examples are less confident than this as are wrong (ATC; Garg et al. 2022).
        most_entropy: As many examples have a larger entropy than this as are wrong.
    """

    rows: int
    error: float
    temperature: float
    least_confidence: float
    most_entropy: float

    @classmethod
    def from_probabilities(cls, probs: Array, y: Array, temperature: float) -> Validation:
        """Return the record, given class probabilities at this temperature, (n, K), and labels, (n,)."""
        error = float((probs.argmax(1) != y).mean())
        thresholds = np.quantile(probs.max(1), error), np.quantile(entropies(probs), 1 - error)
        return cls(len(y), error, temperature, *map(float, thresholds))

    def estimated_error(self, probs: Array) -> float:
        """Return the estimated share of wrong answers, given class probabilities at this temperature, (n, K).

        It is the share of examples beyond the threshold, averaged over the one of confidence and that of entropy.
        """
        unsure = probs.max(1) < self.least_confidence, entropies(probs) > self.most_entropy
        return float(np.stack(unsure).mean())

    def config(self) -> dict[str, Any]:
        """Return the JSON values to save."""
        return asdict(self)


@dataclass(frozen=True)
class ErrorEstimate:
    """An estimated share of wrong answers, with an interval that contains it with a probability of about 80 %."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        low, high = (format_percent(round(end, 2)).removesuffix(" %") for end in (self.low, self.high))
        return f"about {format_percent(round(self.value, 2))} ({low} to {high} %)"


@dataclass(frozen=True)
class ExpectedError:
    """The estimated error of a classifier on new examples without labels.

    Args:
        before: The error of the network as it is.
        after: Its error after `adapt` with these examples.
        usual: Its error on the validation data of `calibrate`; None without.
    """

    before: ErrorEstimate
    after: ErrorEstimate
    usual: float | None

    def __str__(self) -> str:
        usual = "" if self.usual is None else f", was {format_percent(round(self.usual, 2))} on validation data"
        return f"Error on these examples: {self.before}{usual}. After adapting: {self.after}."


def expected_error(
    before: Array, after: Array, mix_share: float, validation: Validation | None, trusted: bool
) -> ExpectedError:
    """Return the estimated errors.

    Args:
        before: Class probabilities of the network as it is, (n, K).
        after: Those of the adapted network, (n, K).
        mix_share: The share of the observed class mix that is taken as real; see `class_mix.py`.
        validation: The record of validation data.
        trusted: Whether the adapted network is trusted.
    """
    later = float(1 - after.max(1).mean())
    if validation is not None:
        later = validation.estimated_error(after)
        after = softened(after, 1 - later)
    correct, confidence = chosen_probability(before, after), after.max(1)
    now = float(1 - correct.mean())
    usual = later if validation is None else validation.error
    rise = max(0.0, now - usual)
    if not trusted:
        ends = sorted((float(1 - before.max(1).mean()), now))
        middle = ErrorEstimate(sum(ends) / 2, *ends)
        return ExpectedError(middle, middle, None if validation is None else validation.error)
    return ExpectedError(
        _estimate(now, correct, rise, mix_share),
        _estimate(later, confidence, rise, mix_share),
        None if validation is None else validation.error,
    )


def chosen_probability(before: Array, after: Array) -> Array:
    """Return the probability that the adapted network gives to the class that the unadapted one predicts, (n,)."""
    return np.take_along_axis(after, before.argmax(1)[:, None], 1)[:, 0]


def softened(probs: Array, confidence: float) -> Array:
    """Return probabilities at the temperature, between SHARPEST and SOFTEST, that gives this mean confidence."""
    logits = np.log(np.maximum(probs, 1e-30))
    low, high = math.log(SHARPEST), math.log(SOFTEST)
    for _ in range(30):
        middle = (low + high) / 2
        too_confident = float(_softmax(logits / math.exp(middle)).max(1).mean()) > confidence
        low, high = (middle, high) if too_confident else (low, middle)
    return _softmax(logits / math.exp(high))


def entropies(probs: Array) -> Array:
    """Return the entropy of the probabilities of every example, (n,)."""
    return -(probs * np.log(np.where(probs > 0, probs, 1))).sum(1)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _estimate(value: float, correct: Array, rise: float, mix_share: float) -> ErrorEstimate:
    chance = float((correct * (1 - correct)).mean()) / len(correct)
    constant, same_mix, other_mix = MODEL_ERROR
    model = constant + rise * (same_mix + mix_share * (other_mix - same_mix))
    width = WIDTH * math.sqrt(chance + model**2)
    return ErrorEstimate(value, max(0.0, value - width), min(1.0, value + width))
