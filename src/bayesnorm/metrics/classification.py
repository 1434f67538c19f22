"""Scores of class probabilities, per row or per pixel.

All take `ignore_index`, the label of points to leave out (void, 11 in CamVid), beside the likelihood's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import require_whole
from ..errors import InputError
from ..predictive import ClassificationPredictive
from .checks import classification_targets, number_pair
from .points import mean_over_points


def nll(predictive: ClassificationPredictive, y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return the negative log likelihood of the mixture over samples: the mean of -log sum_t weight_t p_t(y | x).

    It is in nats; lower is better. It is infinite where a target has probability 0, which a softmax never gives.
    """
    target, scored = classification_targets(predictive, y, ignore_index)
    return -mean_over_points(predictive.log_prob(target), scored)


def brier(predictive: ClassificationPredictive, y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return the Brier score, the mean of sum over classes of (p - 1[class is y])^2: from 0 to 2, lower is better."""
    target, scored = classification_targets(predictive, y, ignore_index)
    probs = predictive.probs
    off = probs.scatter_add(1, target[:, None], -torch.ones_like(probs[:, :1]))
    return mean_over_points(off.square().sum(1), scored)


def accuracy(predictive: ClassificationPredictive, y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return the share of points whose most probable class is the target; higher is better."""
    target, scored = classification_targets(predictive, y, ignore_index)
    return mean_over_points((predictive.label == target).to(predictive.probs.dtype), scored)


@dataclass(frozen=True)
class ReliabilityCurve:
    """Accuracy against confidence, bin by bin; empty bins hold NaN and share 0."""

    confidence: Tensor
    """Mean probability of the chosen class."""
    accuracy: Tensor
    """Share of the bin's points whose chosen class is right."""
    share: Tensor
    """Share of all points that lie in the bin."""

    @property
    def error(self) -> Tensor:
        """The expected calibration error: the sum over bins of share |accuracy - confidence|."""
        return ((self.accuracy - self.confidence).abs() * self.share).nan_to_num().sum()


def reliability_curve(
    predictive: ClassificationPredictive,
    y: Any,
    *,
    bins: int = 15,
    adaptive: bool = False,
    ignore_index: int | None = None,
) -> ReliabilityCurve:
    """Return accuracy against confidence, bin by bin.

    Args:
        predictive: Predictions of classes.
        y: Class numbers, one per point.
        bins: Number of bins.
        adaptive: Whether bins hold equally many points, ties in confidence staying together, rather than have equal
            width (each open on the left and closed on the right).
        ignore_index: Label of points to leave out.
    """
    target, scored = classification_targets(predictive, y, ignore_index)
    return confidence_curve(predictive.confidence[scored], (predictive.label == target)[scored], bins, adaptive)


def confidence_curve(confidence: Any, right: Any, bins: int = 15, adaptive: bool = False) -> ReliabilityCurve:
    """Return `reliability_curve` of points that are flat already, such as the pixels of many images.

    Args:
        confidence: Probability of the chosen class, one per point.
        right: Whether it is the target, one per point.
        bins, adaptive: As in `reliability_curve`.
    """
    bins = require_whole("bins", bins, error=InputError)
    confidence, hits = number_pair(confidence, right, names=("confidence", "right"))
    confidence, order = confidence.sort()
    points = torch.tensor(len(confidence), device=confidence.device)
    if adaptive:
        last = -(-torch.arange(1, bins + 1, device=points.device) * points // bins) - 1
        edges = confidence[last]
    else:
        edges = torch.linspace(0, 1, bins + 1, dtype=confidence.dtype, device=confidence.device)[1:]
        edges[-1] = 2.0  # rounding may lift a probability over 1
    ends = torch.searchsorted(confidence, edges, right=True)
    number = ends.diff(prepend=ends.new_zeros(1)).to(confidence.dtype)
    sums = (_sums_between(values, ends) for values in (confidence, hits[order]))
    confidences, rights = (total / number for total in sums)
    return ReliabilityCurve(confidences, rights, number / points)


def ece(
    predictive: ClassificationPredictive,
    y: Any,
    *,
    bins: int = 15,
    adaptive: bool = False,
    ignore_index: int | None = None,
) -> Tensor:
    """Return the expected calibration error, the sum over bins of share |accuracy - confidence|.

    It goes from 0 to 1; lower is better. Arguments as in `reliability_curve`.
    """
    curve = reliability_curve(predictive, y, bins=bins, adaptive=adaptive, ignore_index=ignore_index)
    return curve.error.to(predictive.probs.dtype)


def mean_iou(predictive: ClassificationPredictive, y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return intersection over union of predicted and true points, per class over all rows, then the mean over classes.

    It goes from 0 to 1; higher is better. Classes that are neither predicted nor true take no part.
    """
    target, scored = classification_targets(predictive, y, ignore_index)
    classes = predictive.probs.shape[1]

    def count(labels: Tensor, where: Tensor) -> Tensor:
        return torch.bincount(torch.where(where, labels, classes).flatten(), minlength=classes + 1)[:classes]

    both = count(target, scored & (predictive.label == target))
    either = count(target, scored) + count(predictive.label, scored) - both
    share = both / either.clamp_min(1)
    return (share.sum() / (either > 0).sum()).to(predictive.probs.dtype)


def _sums_between(values: Tensor, ends: Tensor) -> Tensor:
    """Return the sums of `values` from each end to the next."""
    running = torch.cat([values.new_zeros(1), values.cumsum(0)])
    return running[ends].diff(prepend=values.new_zeros(1))
