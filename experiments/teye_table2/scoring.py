"""Scores of every method by number of samples, each with its standard error over images.

With D samples there are floor(D / T) predictions from T samples each that share no sample. Their mean is the score of T
samples, and their standard deviation shows how much one prediction depends on which samples it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import bayesnorm as bn

from .methods import SOFTMAX, Predicted


@dataclass(frozen=True, eq=False)
class Score:
    """The score of a method at one number of samples.

    Args:
        method: Its name.
        samples: T, the number of samples.
        passes: Cost of a prediction, in forward passes.
        nll: Negative log likelihood of every image, a mean over predictions that share no sample; (images,).
        accuracy: Fraction of correctly classified images, a mean over the same.
        first: The mean of the first prediction alone.
        spread: Standard deviation of the predictions' means; None if there is only one.
    """

    method: str
    samples: int
    passes: float
    nll: Tensor
    accuracy: float
    first: float
    spread: float | None

    @property
    def mean(self) -> float:
        """Return the mean NLL."""
        return float(self.nll.mean())

    @property
    def standard_error(self) -> float:
        """Return its standard error over images."""
        return standard_error(self.nll)

    def gain_over(self, other: Score) -> tuple[float, float]:
        """Return how much lower the NLL is than another's, and the standard error of that over the same images."""
        difference = other.nll - self.nll
        return float(difference.mean()), standard_error(difference)

    def as_json(self, softmax: Score) -> dict[str, Any]:
        """Return plain values."""
        gain, error = self.gain_over(softmax)
        numbers = {
            "nll": self.mean,
            "standard_error": self.standard_error,
            "spread": self.spread,
            "first": self.first,
            "accuracy": self.accuracy,
            "gain": gain,
            "gain_error": error,
        }
        rounded = {name: None if value is None else round(value, 6) for name, value in numbers.items()}
        return {"method": self.method, "samples": self.samples, "passes": round(self.passes, 2), **rounded}


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of all methods on one network, in order."""

    all: Sequence[Score]

    def score(self, method: str, samples: int | None = None) -> Score:
        """Return a method's score at a number of samples, or at its largest."""
        results = [score for score in self.all if score.method == method and samples in (None, score.samples)]
        return results[-1]

    def as_json(self) -> list[dict[str, Any]]:
        """Return plain values, a row for each score."""
        return [score.as_json(self.score(SOFTMAX)) for score in self.all]


def score_all(predicted: Sequence[Predicted], labels: Tensor) -> Scores:
    """Return the scores of all predictions."""
    return Scores([_score(one, samples, labels.cpu()) for one in predicted for samples in numbers_of_samples(one)])


def numbers_of_samples(predicted: Predicted) -> list[int]:
    """Return the powers of two up to a method's samples, or all of its samples alone."""
    samples = len(predicted.outputs)
    return [samples] if predicted.whole else [2**power for power in range(samples.bit_length())]


def standard_error(values: Tensor) -> float:
    """Return the standard error of a mean."""
    return float(values.std()) / len(values) ** 0.5


def _score(predicted: Predicted, samples: int, labels: Tensor) -> Score:
    predictions = len(predicted.outputs) // samples
    parts = predicted.outputs[: predictions * samples].split(samples)
    predictives = [bn.Categorical().predictive(part) for part in parts]
    nll = torch.stack([-predictive.log_prob(labels).double() for predictive in predictives])
    right = torch.stack([(predictive.label == labels).double().mean() for predictive in predictives])
    means = nll.mean(1)
    return Score(
        method=predicted.method,
        samples=samples,
        passes=samples * predicted.passes,
        nll=nll.mean(0),
        accuracy=float(right.mean()),
        first=float(means[0]),
        spread=float(means.std()) if predictions > 1 else None,
    )
