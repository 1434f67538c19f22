"""What labelled validation data say about a classifier, to estimate its error on data without labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..schema import number, record, whole

SCHEMA = record(
    rows=whole(1),
    error=number(0, 1),
    temperature=number(above=0),
    least_confidence=number(0, 1),
    most_entropy=number(0),
)


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
    def from_probabilities(cls, probs: Tensor, y: Tensor, temperature: float) -> Self:
        """Return the record, given class probabilities at this temperature, (n, K), and labels, (n,)."""
        confidence, label = probs.double().max(1)
        entropy = torch.special.entr(probs.double()).sum(1)
        error = float((label != y.to(label.device)).double().mean())
        thresholds = torch.quantile(confidence, error), torch.quantile(entropy, 1 - error)
        return cls(len(y), error, temperature, *map(float, thresholds))

    def estimated_error(self, probs: Tensor) -> float:
        """Return the estimated share of wrong answers, given class probabilities at this temperature, (n, K).

        It is the share of examples beyond the threshold, averaged over the one of confidence and that of entropy.
        """
        unsure = probs.amax(1) < self.least_confidence, torch.special.entr(probs).sum(1) > self.most_entropy
        return float(torch.stack(unsure).double().mean())

    def config(self) -> dict[str, Any]:
        """Return the JSON values to save."""
        return asdict(self)
