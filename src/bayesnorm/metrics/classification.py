"""Scores of class probabilities, per example or per pixel.

All take `ignore_index`, the label of points to leave out, such as unlabelled pixels. Points with the likelihood's own
`ignore_index` are left out too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import require_whole
from ..errors import InputError
from ..predictive import ClassificationPredictive
from .checks import classification_targets, mean_over_points, number_pair


def nll(predictive: ClassificationPredictive, y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return the negative log likelihood of the mixture over samples: the mean of -log sum_t weight_t p_t(y | x).

    It is in nats; lower is better. It is infinite if a target has probability 0, which a softmax never gives.
    """
    target, scored = classification_targets(predictive, y, ignore_index)
    return -mean_over_points(predictive.log_prob(target), scored)


def brier(predictive: ClassificationPredictive, y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return the Brier score, the mean over points of the sum over classes of (p - 1[class is y])^2.

    It is between 0 and 2; lower is better.
    """
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
    """Accuracy and confidence of every bin; empty bins have NaN and share 0."""

    confidence: Tensor
    """Mean probability of the predicted class."""
    accuracy: Tensor
    """Share of the bin's points whose predicted class is correct."""
    share: Tensor
    """Share of all points that are in the bin."""

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
    """Return accuracy and confidence in bins of confidence.

    Args:
        predictive: Predictions of classes.
        y: Class numbers, one per point.
        bins: Number of bins.
        adaptive: If True, bins have equally many points, and points of equal confidence share a bin. If False, bins
            have equal width and contain their right edge.
        ignore_index: Label of points to leave out.
    """
    target, scored = classification_targets(predictive, y, ignore_index)
    return confidence_curve(predictive.confidence[scored], (predictive.label == target)[scored], bins, adaptive)


def confidence_curve(confidence: Any, right: Any, bins: int = 15, adaptive: bool = False) -> ReliabilityCurve:
    """Return the `reliability_curve` of 1-D confidences, such as those of the pixels of many images.

    Args:
        confidence: Probability of the predicted class, one per point.
        right: Whether the predicted class is correct, one per point.
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
        edges[-1] = 2.0  # rounding can raise a probability above 1
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

    It is between 0 and 1; lower is better. The arguments are those of `reliability_curve`.
    """
    curve = reliability_curve(predictive, y, bins=bins, adaptive=adaptive, ignore_index=ignore_index)
    return curve.error.to(predictive.probs.dtype)


def mean_iou(predictive: ClassificationPredictive, y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return the mean over classes of the intersection over union of predicted and true points.

    Points of all images are counted together. It is between 0 and 1; higher is better. Classes that neither occur nor
    are predicted are left out.
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
    """Return the sums of `values` between successive ends."""
    running = torch.cat([values.new_zeros(1), values.cumsum(0)])
    return running[ends].diff(prepend=values.new_zeros(1))
