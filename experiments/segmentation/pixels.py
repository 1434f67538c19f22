"""Predict every pixel of some images, image by image, and score the predictions.

No samples are stored: memory holds five numbers per pixel, for any number of samples and classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from bayesnorm.engines import MonteCarlo
from bayesnorm.metrics import (
    aupr,
    auroc,
    confidence_curve,
    retention_curve,
)
from bayesnorm.posterior import Posterior
from bayesnorm.predictive import ClassificationPredictive

from ..data import CAMVID_CLASSES, CAMVID_VOID
from .scores import boundary_distance, confusion_matrix, patches, segmentation_scores

# Images that are predicted at once.
AT_ONCE = 4

DOUBTS = ("entropy", "mutual information", "expected entropy")
# Fractions of pixels that are kept, and bin edges of the distance to another class, in pixels.
KEPT = [number / 20 for number in range(1, 21)]
DISTANCES = (1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, math.inf)
BINS = [
    f"{low:g}-{high:g}" if high < math.inf else f"> {low:g}"
    for low, high in zip((0, *DISTANCES), DISTANCES, strict=False)
]
DECILES, THRESHOLDS = 10, 21


@dataclass(frozen=True, eq=False)
class Frames:
    """Images to predict.

    Args:
        x: Network input, (N, 3, height, width).
        y: Labels, (N, height, width).
        distance: Distance in pixels from each pixel to one of another class, (N, height, width).
    """

    x: Tensor
    y: Tensor
    distance: Tensor

    @classmethod
    def with_distances(cls, x: Tensor, y: Tensor) -> Frames:
        """Return images with their distances."""
        return cls(x, y, boundary_distance(y, ignore_index=CAMVID_VOID).to(y.device))

    def part(self, rows: slice) -> Frames:
        """Return some of the images."""
        return Frames(self.x[rows], self.y[rows], self.distance[rows])


@dataclass(frozen=True, eq=False)
class Pixels:
    """Predictions, each (N, height, width): class, its probability, log probability of the label, uncertainties."""

    label: Tensor
    confidence: Tensor
    log_prob: Tensor
    entropy: Tensor
    mutual_information: Tensor

    def part(self, rows: slice) -> Pixels:
        """Return the predictions for some of the images."""
        return Pixels(*(getattr(self, field.name)[rows] for field in fields(self)))

    def uncertainty(self, name: str) -> Tensor:
        """Return one kind of uncertainty, in nats."""
        if name == "expected entropy":
            return (self.entropy - self.mutual_information).clamp_min(0)
        return self.entropy if name == "entropy" else self.mutual_information


def ask(posterior: Posterior, frames: Frames, samples: int) -> Pixels:
    """Return a posterior's predictions for images, some at a time."""
    parts = []
    for x, y in zip(frames.x.split(AT_ONCE), frames.y.split(AT_ONCE), strict=True):
        said = predicted(posterior, x, samples)
        parts.append(
            (said.label.to(torch.uint8), said.confidence, said.log_prob(y), said.entropy, said.mutual_information)
        )
    return Pixels(*(torch.cat(part) for part in zip(*parts, strict=True)))


def predicted(posterior: Posterior, x: Tensor, samples: int) -> ClassificationPredictive:
    """Return class predictions with so many samples, or with every network of an ensemble."""
    said = posterior.predict(x, MonteCarlo(min(samples, posterior.default_samples)), keep="summary")
    assert isinstance(said, ClassificationPredictive)
    return said


def scores(said: Pixels, frames: Frames) -> dict[str, Any]:
    """Return scores of classes and uncertainties as plain values; entries called "frames" have one number per image."""
    y, seen = frames.y, frames.y != CAMVID_VOID
    segmentation = segmentation_scores(confusion_matrix(said.label, y, len(CAMVID_CLASSES), ignore_index=CAMVID_VOID))
    right = (said.label == y)[seen]
    wrong = (~right).double()
    nll = [float(-(part[labelled].double().mean())) for part, labelled in zip(said.log_prob, seen, strict=True)]
    return {
        "mean IoU": float(segmentation.mean_iou),
        "accuracy": float(segmentation.global_accuracy),
        "class accuracy": float(segmentation.class_accuracy),
        "IoU": _plain(segmentation.iou),
        "accuracy of frames": [
            float((part == labels)[k].double().mean()) for part, labels, k in zip(said.label, y, seen, strict=True)
        ],
        "nll": float(-said.log_prob[seen].double().mean()),
        "nll of frames": nll,
        "ece": float(confidence_curve(said.confidence[seen], right).error),
        "calibration": _calibration(said.confidence[seen], right),
        "ece by predicted class": _by_class(said, y, seen),
        "doubts": {name: _of_uncertainty(said.uncertainty(name), said.label, wrong, frames, seen) for name in DOUBTS},
        "error by distance": _by_distance((said.label != y).double(), frames, seen),
        "pixels by distance": dict(
            zip(BINS, _places(frames, seen).bincount(minlength=len(BINS)).tolist(), strict=True)
        ),
    }


def without_frames(scores: Any) -> Any:
    """Return scores without entries that have a number for each image, which only the verdicts need."""
    if isinstance(scores, dict):
        return {name: without_frames(value) for name, value in scores.items() if not name.endswith(" of frames")}
    return scores


def _of_uncertainty(uncertainty: Tensor, label: Tensor, wrong: Tensor, frames: Frames, seen: Tensor) -> dict[str, Any]:
    """Return the scores of one kind of uncertainty; empty if it is constant, as the epistemic one of a softmax."""
    values = uncertainty[seen].double()
    means = [float(part[labelled].double().mean()) for part, labelled in zip(uncertainty, seen, strict=True)]
    told: dict[str, Any] = {"mean": float(values.mean()), "mean of frames": means}
    if not float(values.max()) > 1e-6:
        return told
    hits, misses = values[wrong == 0], values[wrong == 1]
    curve = retention_curve(values, wrong)
    places = [max(0, round(share * len(values)) - 1) for share in KEPT]
    cut = patches(label, uncertainty, frames.y, ignore_index=CAMVID_VOID)
    low, high = float(cut.uncertainty.min()), float(cut.uncertainty.max())
    at = cut.at(torch.linspace(low, high, THRESHOLDS, dtype=torch.float64))
    order = wrong[values.argsort()]
    return told | {
        "auroc": float(auroc(hits, misses)),
        "aupr": float(aupr(hits, misses)),
        "auroc of frames": _of_frames(uncertainty, label, frames, seen),
        "error of kept": [float(curve.error[place]) for place in places],
        "area under error of kept": float(curve.error.mean()),
        "error of deciles": [float(part.mean()) for part in order.tensor_split(DECILES)],
        "by distance": _by_distance(uncertainty.double(), frames, seen),
        "pavpu": _plain(at.pavpu),
        "mean pavpu": float(at.pavpu.mean()),
        "pavpu at mean uncertainty": float(cut.at([float(cut.uncertainty.mean())]).pavpu),
        "accurate if certain": _plain(at.accurate_if_certain),
        "uncertain if inaccurate": _plain(at.uncertain_if_inaccurate),
    }


def _of_frames(uncertainty: Tensor, label: Tensor, frames: Frames, seen: Tensor) -> list[float | None]:
    """Return the AUROC of errors in every image; None if an image has only correct or only wrong pixels."""
    by_frame: list[float | None] = []
    for values, chosen, y, labelled in zip(uncertainty, label, frames.y, seen, strict=True):
        right = (chosen == y)[labelled]
        mixed = bool(right.any()) and not bool(right.all())
        by_frame.append(float(auroc(values[labelled][right], values[labelled][~right])) if mixed else None)
    return by_frame


def _by_distance(values: Tensor, frames: Frames, seen: Tensor) -> dict[str, float | None]:
    """Return means over pixels by their distance to another class."""
    places = _places(frames, seen)
    sums = torch.zeros(len(BINS), dtype=torch.float64, device=values.device)
    sums.index_add_(0, places, values[seen])
    counts = torch.bincount(places, minlength=len(BINS))
    return dict(zip(BINS, _plain(sums / counts), strict=True))


def _places(frames: Frames, seen: Tensor) -> Tensor:
    """Return the distance bin of each labelled pixel."""
    return torch.bucketize(frames.distance[seen], torch.tensor(DISTANCES[:-1], device=seen.device))


def _calibration(confidence: Tensor, right: Tensor) -> dict[str, list[float | None]]:
    curve = confidence_curve(confidence, right)
    return {"confidence": _plain(curve.confidence), "accuracy": _plain(curve.accuracy), "share": _plain(curve.share)}


def _by_class(said: Pixels, y: Tensor, seen: Tensor) -> dict[str, float | None]:
    """Return the ECE of the pixels that are predicted to be of each class."""
    errors: dict[str, float | None] = {}
    for number, name in enumerate(CAMVID_CLASSES):
        predicted = seen & (said.label == number)
        errors[name] = (
            float(confidence_curve(said.confidence[predicted], (y == number)[predicted]).error)
            if predicted.any()
            else None
        )
    return errors


def _plain(values: Tensor) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def paired(one: list[float | None], other: list[float | None] | float) -> tuple[float, float]:
    """Return the mean over images of one value minus another, or minus a number, and its standard error."""
    others = [other] * len(one) if isinstance(other, int | float) else other
    apart = torch.tensor([a - b for a, b in zip(one, others, strict=True) if a is not None and b is not None])
    return float(apart.double().mean()), float(apart.double().std() / len(apart) ** 0.5)
