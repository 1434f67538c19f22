"""Scores of segmentation: confusion matrix, uncertainty of patches, and distance from object boundaries.

All are sums over images or work image by image, so a data set of any size can be scored in parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.ndimage
import torch
from torch import Tensor
from torch.nn import functional as F

from bayesnorm.arguments import require_number, require_whole
from bayesnorm.errors import InputError
from bayesnorm.metrics.checks import number_vector, real_tensor, wide


@dataclass(frozen=True)
class SegmentationScores:
    """Accuracies of pixels, between 0 and 1; higher is better. Classes without pixels have NaN."""

    global_accuracy: Tensor
    """Share of labelled pixels whose class is predicted correctly."""
    class_accuracy: Tensor
    """Mean of `accuracy` over the classes that occur."""
    mean_iou: Tensor
    """Mean of `iou` over the classes that occur or are predicted."""
    accuracy: Tensor
    """Share of each class's pixels that are predicted correctly, (classes,)."""
    iou: Tensor
    """Intersection over union of each class's true and predicted pixels, (classes,)."""


def confusion_matrix(label: Any, y: Any, classes: int, *, ignore_index: int | None = None) -> Tensor:
    """Count points by true class (rows) and predicted class (columns). Matrices of several batches can be added.

    Args:
        label: Predicted classes, of any shape.
        y: True classes, of the same shape.
        classes: Number of classes.
        ignore_index: True class of points to leave out.
    """
    classes = require_whole("classes", classes, error=InputError)
    predicted, true = real_tensor("label", label), real_tensor("y", y)
    if predicted.shape != true.shape:
        raise InputError(f"label and y must have the same shape, got {tuple(predicted.shape)} and {tuple(true.shape)}.")
    true = true.to(predicted.device)
    scored = torch.ones_like(true, dtype=torch.bool) if ignore_index is None else true != ignore_index
    predicted, true = predicted[scored].long(), true[scored].long()
    for name, result in (("label", predicted), ("y", true)):
        if result.numel() and not bool(((result >= 0) & (result < classes)).all()):
            raise InputError(
                f"{name} must have classes from 0 to {classes - 1}, got {int(result.min())} to {int(result.max())}."
            )
    return torch.bincount(true * classes + predicted, minlength=classes**2).view(classes, classes)


def segmentation_scores(confusion: Any) -> SegmentationScores:
    """Return accuracies and intersections over union from a confusion matrix, true classes in rows."""
    counts = wide(real_tensor("confusion", confusion))
    if counts.dim() != 2 or counts.shape[0] != counts.shape[1] or not bool(counts.sum() > 0):
        raise InputError(
            "confusion must be counts of at least one point, of shape (classes, classes), "
            f"got shape {tuple(counts.shape)} and sum {float(counts.sum()):g}."
        )
    right, true, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    accuracy, iou = right / true, right / (true + predicted - right)
    return SegmentationScores(right.sum() / counts.sum(), accuracy.nanmean(), iou.nanmean(), accuracy, iou)


@dataclass(frozen=True)
class PatchUncertainty:
    """Shares of accurate and of uncertain patches (Mukhoti and Gal 2018), for every threshold; higher is better."""

    thresholds: Tensor
    """Uncertainty above which a patch counts as uncertain."""
    accurate_if_certain: Tensor
    """Share of accurate patches among the certain ones; NaN if none is certain."""
    uncertain_if_inaccurate: Tensor
    """Share of uncertain patches among the inaccurate ones; NaN if all are accurate."""
    pavpu: Tensor
    """Share of patches that are accurate and certain, or inaccurate and uncertain."""


@dataclass(frozen=True)
class Patches:
    """Patches of images: whether each is accurate, and its mean uncertainty; both 1-D."""

    accurate: Tensor
    uncertainty: Tensor

    def at(self, thresholds: Any) -> PatchUncertainty:
        """Return the shares of accurate and of uncertain patches for every threshold of uncertainty."""
        levels = number_vector("thresholds", thresholds).to(self.uncertainty.device)
        sure, unsure = (self.uncertainty[chosen].sort().values for chosen in (self.accurate, ~self.accurate))
        accurate_certain, inaccurate_certain = (wide(torch.searchsorted(d, levels, right=True)) for d in (sure, unsure))
        inaccurate_uncertain = len(unsure) - inaccurate_certain
        return PatchUncertainty(
            levels,
            accurate_certain / (accurate_certain + inaccurate_certain),
            inaccurate_uncertain / len(unsure) if len(unsure) else torch.full_like(levels, torch.nan),
            (accurate_certain + inaccurate_uncertain) / len(self.uncertainty),
        )


def patches(
    label: Any, uncertainty: Any, y: Any, *, size: int = 4, least: float = 0.5, ignore_index: int = -100
) -> Patches:
    """Split images into square patches that do not overlap, and return the accuracy and uncertainty of each.

    Args:
        label: Predicted classes, (batch, height, width).
        uncertainty: Uncertainty of every pixel, such as entropy or mutual information, (batch, height, width).
        y: True classes, (batch, height, width).
        size: Side of a patch in pixels. Pixels at the lower and right edges that fill no patch are left out.
        least: A patch is accurate if more than this share of its labelled pixels is correct.
        ignore_index: True class of pixels to leave out. A patch without other pixels is left out.

    Returns:
        Patches; `.at(thresholds).pavpu` is Mukhoti and Gal's score. The uncertainty of a patch is the mean of its
        pixels.
    """
    size = require_whole("size", size, error=InputError)
    least = require_number("least", least, least=0, below=1, error=InputError)
    predicted, doubts, true = (
        real_tensor(name, value) for name, value in (("label", label), ("uncertainty", uncertainty), ("y", y))
    )
    if predicted.dim() != 3 or predicted.shape != doubts.shape or predicted.shape != true.shape:
        shapes = ", ".join(str(tuple(values.shape)) for values in (predicted, doubts, true))
        raise InputError(f"label, uncertainty and y must all have shape (batch, height, width), got {shapes}.")
    true = true.to(predicted.device)
    labelled = true != ignore_index

    def sums(values: Tensor) -> Tensor:
        """Return sums over the labelled pixels of every patch."""
        seen = torch.where(labelled, values.to(true.device, torch.get_default_dtype()), 0)
        return F.avg_pool2d(seen[:, None], size).flatten() * size**2

    number, right, level = sums(labelled).round(), sums(predicted == true).round(), sums(doubts)
    present = number > 0
    if not bool(present.any()):
        raise InputError(f"y has no patch of {size} x {size} pixels with a label. Check size and ignore_index.")
    return Patches(right[present] > least * number[present], level[present] / number[present])


def boundary_distance(y: Any, *, ignore_index: int | None = None) -> Tensor:
    """Return the distance in pixels from every pixel to the nearest pixel of another class, (batch, height, width).

    It is 1 for pixels next to another class, and infinite in images with a single class.

    Args:
        y: True classes, (batch, height, width).
        ignore_index: Class of unlabelled pixels. They do not count as another class, and their distance is NaN.
    """
    labels = real_tensor("y", y).detach().cpu().numpy()
    if labels.ndim != 3:
        raise InputError(f"y must have shape (batch, height, width), got {labels.shape}.")
    result = np.full(labels.shape, np.inf, np.float32)
    for image, distance in zip(labels, result, strict=True):
        void = np.zeros_like(image, dtype=bool) if ignore_index is None else image == ignore_index
        present = np.unique(image[~void])
        for kind in present if len(present) > 1 else ():
            members = image == kind
            distance[members] = scipy.ndimage.distance_transform_edt(members | void)[members]
        distance[void] = np.nan
    return torch.from_numpy(result)
