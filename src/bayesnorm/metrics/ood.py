"""Scores of how well uncertainty tells strange inputs from known ones.

Each takes the uncertainty of points from inside the training distribution and of points from outside it, both flat. Uncertainty
is any number that grows with uncertainty. Outside is the class to detect ("positive"); ties are counted exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..predictive import ClassificationPredictive
from .checks import check_classification, number_vector, wide


def auroc(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the area under the ROC curve: P(uncertainty_out > uncertainty_in) + P(uncertainty_out = uncertainty_in) / 2.

    It goes from 0 to 1; higher is better, 1/2 is chance.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    below = torch.searchsorted(inside, outside)
    not_above = torch.searchsorted(inside, outside, right=True)
    return (below + not_above).to(inside.dtype).sum() / (2 * len(inside) * len(outside))


def aupr(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the area under the precision-recall curve as average precision, outside being the class to detect.

    This is the mean, over outside points, of the precision at their own uncertainty as threshold. Up to 1; higher is better,
    and the share of outside points is chance.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    caught = len(outside) - torch.searchsorted(outside, outside)
    false_alarms = len(inside) - torch.searchsorted(inside, outside)
    return (caught / (caught + false_alarms).to(inside.dtype)).mean()


def fpr95(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the false positive rate at 95 % recall; from 0 to 1, lower is better.

    This is the share of inside points at or above the uncertainty that at least 95 % of the outside points reach.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    caught = -(-95 * len(outside) // 100)
    threshold = outside[len(outside) - caught]
    return (inside >= threshold).to(inside.dtype).mean()


@dataclass(frozen=True)
class EntropyCDF:
    """Empirical distribution function of the predictive entropy."""

    entropy: Tensor
    """Entropies in nats."""
    share: Tensor
    """Share of points with at most this entropy."""


def entropy_cdf(predictive: ClassificationPredictive, at: Sequence[float] | Tensor | None = None) -> EntropyCDF:
    """Return the share of points whose predictive entropy is at most `at`, for every entropy asked for.

    Inside the training distribution a curve that rises early is good, outside of it one that rises late.

    Args:
        predictive: Predictions, per row or per pixel.
        at: Entropies in nats; None for 101 even steps from 0 to the greatest possible, ln(classes).
    """
    check_classification(predictive)
    most = math.log(predictive.probs.shape[1])
    entropy = number_vector("predictive.entropy", predictive.entropy.flatten()).clamp(0, most).sort().values
    asked = torch.linspace(0, most, 101, dtype=torch.float64) if at is None else number_vector("at", at)
    asked = wide(asked.to(entropy.device))
    return EntropyCDF(asked, torch.searchsorted(entropy, asked, right=True).to(entropy.dtype) / len(entropy))


def _sorted_pair(uncertainty_in: Any, uncertainty_out: Any) -> tuple[Tensor, Tensor]:
    """Check and sort the uncertainty of inside and of outside points."""
    inside, outside = number_vector("uncertainty_in", uncertainty_in), number_vector("uncertainty_out", uncertainty_out)
    return inside.sort().values, outside.to(inside.device).sort().values
