"""Scores of how well uncertainty detects inputs from outside the training distribution.

Each takes the uncertainty of points from inside the training distribution and of points from outside it, both 1-D. The
uncertainty can be any quantity, such as standard deviation, entropy or mutual information. Outside is the positive
class. Ties are counted exactly.
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
    """Return the area under the ROC curve, P(out > in) + P(out = in) / 2 for the uncertainty of two random points.

    It is between 0 and 1; higher is better, and 1/2 is chance.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    below = torch.searchsorted(inside, outside)
    not_above = torch.searchsorted(inside, outside, right=True)
    return (below + not_above).to(inside.dtype).sum() / (2 * len(inside) * len(outside))


def aupr(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the area under the precision-recall curve as average precision, with outside as the positive class.

    It is the mean, over outside points, of the precision with that point's uncertainty as threshold. It is at most 1;
    higher is better. Chance is the share of outside points.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    caught = len(outside) - torch.searchsorted(outside, outside)
    false_alarms = len(inside) - torch.searchsorted(inside, outside)
    return (caught / (caught + false_alarms).to(inside.dtype)).mean()


def fpr95(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the false positive rate at 95 % recall, between 0 and 1; lower is better.

    The threshold is the largest uncertainty that at least 95 % of the outside points reach. The result is the share of
    inside points that reach it too.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    caught = -(-95 * len(outside) // 100)
    threshold = outside[len(outside) - caught]
    return (inside >= threshold).to(inside.dtype).mean()


@dataclass(frozen=True)
class EntropyCDF:
    """The empirical cumulative distribution function of the predictive entropy."""

    entropy: Tensor
    """Entropies in nats."""
    share: Tensor
    """Share of points with at most this entropy."""


def entropy_cdf(predictive: ClassificationPredictive, at: Sequence[float] | Tensor | None = None) -> EntropyCDF:
    """Return the share of points whose predictive entropy is at most `at`, for every entropy in `at`.

    For data from the training distribution the curve should rise early, for other data late.

    Args:
        predictive: Predictions, per example or per pixel.
        at: Entropies in nats; None for 101 equal steps from 0 to the largest possible entropy, ln(classes).
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
