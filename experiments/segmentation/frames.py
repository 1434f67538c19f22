"""Load CamVid's images and labels as tensors: all or some, filmed by day or at dusk, at full or half size."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import CAMVID_CLASSES, CAMVID_VOID, load_camvid, to_tensor

CLASSES = len(CAMVID_CLASSES)

# The sequence 0001TP, filmed at dusk, comes first in both; all others were filmed by day. "val" has none at dusk.
DUSK_FRAMES = {"train": 62, "test": 62, "val": 0}
FRAMES = {"train": 367, "test": 233, "val": 101}


class Light(StrEnum):
    """When images were filmed."""

    any = "any"
    day = "day"
    dusk = "dusk"


def chosen_frames(split: str, count: int | None, light: Light) -> NDArray[np.intp]:
    """Return the indices of `count` evenly spaced images of a light, or of all."""
    first, number = DUSK_FRAMES[split], FRAMES[split]
    start, end = {Light.any: (0, number), Light.day: (first, number), Light.dusk: (0, first)}[light]
    count = min(count or number, end - start)
    return start + np.arange(count) * (end - start) // count


def lights_of(split: str, count: int | None) -> dict[Light, slice]:
    """Return the light of each of `count` evenly spaced images; dusk comes first."""
    dusk = int((chosen_frames(split, count, Light.any) < DUSK_FRAMES[split]).sum())
    return {Light.any: slice(None), Light.day: slice(dusk, None), Light.dusk: slice(dusk)}


def load_frames(
    split: str, count: int | None = None, *, step: int = 1, light: Light = Light.any
) -> tuple[Tensor, Tensor]:
    """Return uint8 images (N, 3, height, width) and int64 labels (N, height, width); unlabelled pixels have
    `CAMVID_VOID`.

    Args:
        split: "train", "val" or "test".
        count: Number of images, evenly spaced because neighbours are similar; None means all.
        step: Use every step-th pixel in both directions.
        light: The light of the images.
    """
    pixels, labels = load_camvid(split, chosen_frames(split, count, light))
    return to_tensor(pixels[:, ::step, ::step]), torch.from_numpy(np.ascontiguousarray(labels[:, ::step, ::step]))


def median_frequency_weights(y: Tensor) -> Tensor:
    """Return a weight for each class by median-frequency balancing (Eigen and Fergus 2015), (classes,).

    A class's frequency is its fraction of the pixels of the images that contain it. Its weight is the median frequency
    divided by its frequency. Classes that do not occur get weight 0.
    """
    counts = torch.stack([(y == kind).flatten(1).sum(1) for kind in range(CLASSES)], 1).double()
    pixels = (y != CAMVID_VOID).flatten(1).sum(1).double()
    frequency = counts.sum(0) / ((counts > 0) * pixels[:, None]).sum(0)
    seen = frequency[frequency > 0]
    return torch.where(frequency > 0, seen.median() / frequency, 0).float()
