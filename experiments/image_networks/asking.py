"""Score a classifier and its uncertainty on images of its training distribution and on others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bayesnorm.metrics import accuracy, auroc, ece, fpr95, nll
from bayesnorm.predictive import ClassificationPredictive

from ..data import (
    DataNotFoundError,
    load_cifar10,
    load_cifar100,
    load_fashion_mnist,
    load_mnist,
    load_notmnist,
    load_svhn,
    to_tensor,
)
from ..known_names import require_known
from .datasets import image_set, load_images
from .training import Plan

Predict = Callable[[Tensor], ClassificationPredictive]
"""Predicts images given as network input."""

OTHER_FIVE = "the other five classes"
OUTSIDE: dict[str, Callable[[], Any]] = {
    "mnist": lambda: load_mnist("test"),
    "fashion-mnist": lambda: load_fashion_mnist("test"),
    "notmnist": load_notmnist,
    "svhn": load_svhn,
    "cifar100": lambda: load_cifar100("test"),
    OTHER_FIVE: lambda: load_cifar10("test"),
}
"""Images outside of the training distribution, by name: a function that returns them with their labels."""


@dataclass(frozen=True)
class Setting:
    """A network and its test images.

    Args:
        network: The network.
        data: Its training data.
        outside: Images outside of the training distribution, one of `OUTSIDE`.
        paper_network: The network of the paper.
    """

    network: str
    data: str
    outside: str
    paper_network: str


@dataclass(frozen=True)
class Asked:
    """Test images as network input.

    Args:
        x: Test images of the training distribution.
        y: Their labels.
        outside: Images of other distributions, by name.
    """

    x: Tensor
    y: Tensor
    outside: dict[str, Tensor]


def ask_each(
    option: str, all_names: Iterable[str], chosen: Sequence[str] | None, measure: Callable[[str], Any]
) -> dict[str, Any]:
    """Return the result for each name; by default for all names, except those without images.

    Args:
        option: The name of the option, for messages.
        all_names: All names.
        chosen: The names that the user chose, or nothing.
        measure: Function of a name that returns a result.
    """
    names = tuple(all_names)
    require_known(option, chosen or (), names)
    results = {}
    for name in chosen or names:
        try:
            results[name] = measure(name)
        except DataNotFoundError as error:
            if chosen:
                raise
            print(f"{name}: left out, {error}")
    if not results:
        raise DataNotFoundError("No images are available. Download some: `python -m experiments data get cifar10`.")
    return results


def load_asked(plan: Plan, outside: Sequence[str], count: int | None, device: str) -> Asked:
    """Return the recipe's test images and others, the first `count` of each kind or all of them.

    Args:
        plan: Plan of the network.
        outside: Names of other kinds, of `OUTSIDE`.
        count: Number of images of each kind; None means all.
        device: The device.
    """
    scaled = plan.transform().scaled
    x, y = load_images(plan.data, "test", plan.recipe.test_images)
    others = {name: scaled(load_outside(name, plan.data)[:count].to(device)) for name in outside}
    return Asked(scaled(x[:count].to(device)), y[:count].to(device), others)


def load_outside(name: str, data: str) -> Tensor:
    """Return uint8 images (N, channels, 32, 32) of another kind, in the format of the training images.

    Args:
        name: One of `OUTSIDE`.
        data: The network's training data, one of `DATASETS`.
    """
    require_known("outside", [name], OUTSIDE)
    pixels, labels = OUTSIDE[name]()
    if name == OTHER_FIVE:
        pixels = pixels[np.flatnonzero(labels >= image_set(data).classes)]
    images = to_tensor(pixels)
    if images.shape[-1] < 32:
        images = F.pad(images, ((32 - images.shape[-1]) // 2,) * 4)
    channels = image_set(data).channels
    if images.shape[1] > channels:
        images = images.float().mean(1, keepdim=True).round().to(torch.uint8)
    return images.expand(-1, channels, -1, -1)


def uncertainty_scores(predict: Predict, asked: Asked) -> dict[str, Any]:
    """Return scores on images of the training distribution, and how uncertainty differs on others.

    Uncertainties are means over images with their standard errors, in nats. AUROC and FPR95 of each uncertainty
    separate other images from those of the training distribution.
    """
    inside = predict(asked.x)
    doubts = _doubts(inside)
    scores: dict[str, Any] = {
        "accuracy": float(accuracy(inside, asked.y)),
        "nll": float(nll(inside, asked.y)),
        "nll standard error": _mean(-inside.log_prob(asked.y))[1],
        "ece": float(ece(inside, asked.y)),
        "inside": {name: _mean(uncertainty) for name, uncertainty in doubts.items()},
        "outside": {},
    }
    for kind, x in asked.outside.items():
        strange = _doubts(predict(x))
        scores["outside"][kind] = {
            name: {
                "mean": _mean(strange[name]),
                "auroc": float(auroc(doubts[name], strange[name])),
                "fpr95": float(fpr95(doubts[name], strange[name])),
            }
            for name in doubts
        }
    return scores


def entropies(predict: Predict, asked: Asked) -> dict[str, Any]:
    """Return the predictive entropies inside, and outside of all kinds together, as arrays."""
    outside = torch.cat([predict(x).entropy for x in asked.outside.values()])
    return {"inside": predict(asked.x).entropy.cpu().numpy(), "outside": outside.cpu().numpy()}


def _doubts(predictive: ClassificationPredictive) -> dict[str, Tensor]:
    return {
        "entropy": predictive.entropy,
        "mutual information": predictive.mutual_information,
        "expected entropy": predictive.expected_entropy,
    }


def _mean(values: Tensor) -> tuple[float, float]:
    """Return a mean and its standard error."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)
