"""Estimates of a classifier's error without labels, from its probabilities on n images.

Each takes temperature-scaled probabilities, because a temperature is fitted anyway, and what labelled clean images say.

- AC: one minus the mean confidence.
- DoC: the clean error, plus the fall of the mean confidence (Guillory et al. 2021). The paper fits a regression to
  other shifts; without these, its slope is 1.
- ATC: the share of images below the threshold of confidence, or above that of entropy, beyond which as many clean
  images are as are wrong (Garg et al. 2022).
- COT: the cheapest way to turn the probabilities into labels whose shares are those of training (Lu et al. 2023).
- CBPE: AC with probabilities that are calibrated by isotonic regression, one class against all others (NannyML).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, linear_sum_assignment

Probs = NDArray[np.float64]


class CleanRecord:
    """What labelled clean images say about a classifier.

    Args:
        probs: Its probabilities, (N, K).
        labels: The labels, (N,).
    """

    def __init__(self, probs: Probs, labels: NDArray[np.int64]) -> None:
        self.error = float((probs.argmax(1) != labels).mean())
        self.confidence = float(probs.max(1).mean())
        self.least_confidence = float(np.quantile(probs.max(1), self.error))
        self.most_entropy = float(np.quantile(_entropy(probs), 1 - self.error))
        self.shares = np.bincount(labels, minlength=probs.shape[1]) / len(labels)
        self.calibrators = [_Isotonic(probs[:, k], labels == k) for k in range(probs.shape[1])]


class _Isotonic:
    """A map from scores to probabilities that never falls."""

    def __init__(self, scores: Probs, right: NDArray[np.bool_]) -> None:
        order = np.argsort(scores, kind="stable")
        self.scores, self.values = scores[order], isotonic_regression(right[order].astype(float)).x

    def __call__(self, scores: Probs) -> Probs:
        return np.interp(scores, self.scores, self.values)


def average_confidence(probs: Probs, _: CleanRecord) -> float:
    """Return AC."""
    return float(1 - probs.max(1).mean())


def difference_of_confidences(probs: Probs, clean: CleanRecord) -> float:
    """Return DoC."""
    return float(np.clip(clean.error + clean.confidence - probs.max(1).mean(), 0, 1))


def thresholded_confidence(probs: Probs, clean: CleanRecord) -> float:
    """Return ATC with the confidence."""
    return float((probs.max(1) < clean.least_confidence).mean())


def thresholded_entropy(probs: Probs, clean: CleanRecord) -> float:
    """Return ATC with the entropy."""
    return float((_entropy(probs) > clean.most_entropy).mean())


def optimal_transport(probs: Probs, clean: CleanRecord) -> float:
    """Return COT: the mean of 1 - p_k over images, where k is the label that the image is matched with."""
    # As many places for each class as its share of the images, with the largest remainders rounded up.
    exact = clean.shares * len(probs)
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: len(probs) - counts.sum()]] += 1
    cost = 1 - probs[:, np.repeat(np.arange(probs.shape[1]), counts)]
    return float(cost[linear_sum_assignment(cost)].mean())


def calibrated_confidence(probs: Probs, clean: CleanRecord) -> float:
    """Return CBPE for the error."""
    calibrated = np.stack([make(probs[:, k]) for k, make in enumerate(clean.calibrators)], 1)
    total = calibrated.sum(1, keepdims=True)
    calibrated = np.where(total > 0, calibrated / np.where(total > 0, total, 1), 1 / probs.shape[1])
    return float(1 - calibrated[np.arange(len(probs)), probs.argmax(1)].mean())


def _entropy(probs: Probs) -> Probs:
    return -(probs * np.log(np.maximum(probs, 1e-300))).sum(1)


ESTIMATORS: dict[str, Callable[[Probs, CleanRecord], float]] = {
    "AC": average_confidence,
    "DoC": difference_of_confidences,
    "ATC, confidence": thresholded_confidence,
    "ATC, entropy": thresholded_entropy,
    "COT": optimal_transport,
    "CBPE": calibrated_confidence,
}
