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
from dataclasses import dataclass

from torch import Tensor

from ..posterior import Validation
from ..words import format_percent

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
    before: Tensor, after: Tensor, mix_share: float, validation: Validation | None, trusted: bool
) -> ExpectedError:
    """Return the estimated errors.

    Args:
        before: Class probabilities of the network as it is, (n, K).
        after: Those of the adapted network, (n, K).
        mix_share: The share of the observed class mix that is taken as real; see `shift.class_mix`.
        validation: The record of validation data.
        trusted: Whether the adapted network is trusted.
    """
    later = float(1 - after.amax(1).mean())
    if validation is not None:
        later = validation.estimated_error(after)
        after = softened(after, 1 - later)
    correct, confidence = chosen_probability(before, after), after.amax(1)
    now = float(1 - correct.mean())
    usual = later if validation is None else validation.error
    rise = max(0.0, now - usual)
    if not trusted:
        ends = sorted((float(1 - before.amax(1).mean()), now))
        middle = ErrorEstimate(sum(ends) / 2, *ends)
        return ExpectedError(middle, middle, None if validation is None else validation.error)
    return ExpectedError(
        _estimate(now, correct, rise, mix_share),
        _estimate(later, confidence, rise, mix_share),
        None if validation is None else validation.error,
    )


def chosen_probability(before: Tensor, after: Tensor) -> Tensor:
    """Return the probability that the adapted network gives to the class that the unadapted one predicts, (n,)."""
    return after.gather(1, before.argmax(1, keepdim=True))[:, 0]


def softened(probs: Tensor, confidence: float) -> Tensor:
    """Return probabilities at the temperature, between SHARPEST and SOFTEST, that gives this mean confidence."""
    logits = probs.clamp_min(1e-30).log()
    low, high = math.log(SHARPEST), math.log(SOFTEST)
    for _ in range(30):
        middle = (low + high) / 2
        too_confident = float((logits / math.exp(middle)).softmax(1).amax(1).mean()) > confidence
        low, high = (middle, high) if too_confident else (low, middle)
    return (logits / math.exp(high)).softmax(1)


def _estimate(value: float, correct: Tensor, rise: float, mix_share: float) -> ErrorEstimate:
    chance = float((correct * (1 - correct)).mean()) / len(correct)
    constant, same_mix, other_mix = MODEL_ERROR
    model = constant + rise * (same_mix + mix_share * (other_mix - same_mix))
    width = WIDTH * math.sqrt(chance + model**2)
    return ErrorEstimate(value, max(0.0, value - width), min(1.0, value + width))
