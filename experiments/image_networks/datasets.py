"""Data sets of the image experiments: bytes (N, channels, 32, 32), labels, and the conversion to network input."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ..data import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    load_cifar10,
    load_cifar100,
    load_fashion_mnist,
    load_mnist,
    to_tensor,
)
from ..known_names import require_known

# Digits and clothes have one channel, which is scaled like the first of three.
_GREY = {"channels": 1, "mean": IMAGENET_MEAN[:1], "std": IMAGENET_STD[:1], "padding": 2}


@dataclass(frozen=True)
class ImageSet:
    """A data set to train on.

    Args:
        load: `load(split, rows)`, or with `whole=True` if only a part may be available.
        classes: Number of classes that are kept, the first ones.
        channels: Channels of its images.
        flip: Whether a mirror image has the same class.
        padding: Largest shift of images in random crops, in pixels.
        mean, std: Mean and standard deviation of the network input per channel; those of the published networks.
        parts: Whether a data folder may have only a part of it.
    """

    load: Any
    classes: int = 10
    channels: int = 3
    flip: bool = True
    padding: int = 4
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    parts: bool = False


DATASETS: dict[str, ImageSet] = {
    "cifar10": ImageSet(load_cifar10, parts=True),
    "cifar5": ImageSet(load_cifar10, classes=5, parts=True),
    "cifar100": ImageSet(load_cifar100, classes=100),
    "mnist": ImageSet(load_mnist, flip=False, **_GREY),  # type: ignore[arg-type]
    "fashion-mnist": ImageSet(load_fashion_mnist, **_GREY),  # type: ignore[arg-type]
}


def image_set(name: str) -> ImageSet:
    """Return a data set by name, or refuse an unknown name."""
    require_known("data", [name], DATASETS)
    return DATASETS[name]


def load_images(name: str, split: str, count: int | None = None) -> tuple[Tensor, Tensor]:
    """Return uint8 images (N, channels, 32, 32) and labels of a split, or of its first `count` images.

    Digits and clothes get two black pixels on every side. If a set uses fewer classes than its files have, images of
    the other classes are left out.
    """
    made = image_set(name)
    load = partial(made.load, whole=True) if made.parts and count is None else made.load
    pixels, labels = load(split, count)
    rows = np.flatnonzero(labels < made.classes)
    images = to_tensor(pixels if len(rows) == len(pixels) else pixels[rows])
    if images.shape[-1] < 32:
        images = F.pad(images, ((32 - images.shape[-1]) // 2,) * 4)
    return images, torch.from_numpy(labels[rows])
