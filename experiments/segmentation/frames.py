"""CamVid's frames and labels as tensors: some or all of them, of one light or of any, at full or half their size."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesnorm.data import CAMVID_CLASSES, CAMVID_VOID, load_camvid, to_tensor

CLASSES = len(CAMVID_CLASSES)

# The sequence 0001TP, filmed at dusk, stands first in both; all others were filmed by day. There is none in "val".
DUSK_FRAMES = {"train": 62, "test": 62, "val": 0}
FRAMES = {"train": 367, "test": 233, "val": 101}


class Light(StrEnum):
    """When frames were filmed."""

    any = "any"
    day = "day"
    dusk = "dusk"


def chosen_frames(split: str, count: int | None, light: Light) -> NDArray[np.intp]:
    """Return the numbers of `count` frames of a light, evenly spread, or of all."""
    first, number = DUSK_FRAMES[split], FRAMES[split]
    start, end = {Light.any: (0, number), Light.day: (first, number), Light.dusk: (0, first)}[light]
    count = min(count or number, end - start)
    return start + np.arange(count) * (end - start) // count


def lights_of(split: str, count: int | None) -> dict[Light, slice]:
    """Return which of `count` frames of any light, evenly spread, are of which light; dusk comes first."""
    dusk = int((chosen_frames(split, count, Light.any) < DUSK_FRAMES[split]).sum())
    return {Light.any: slice(None), Light.day: slice(dusk, None), Light.dusk: slice(dusk)}


def load_frames(
    split: str, count: int | None = None, *, step: int = 1, light: Light = Light.any
) -> tuple[Tensor, Tensor]:
    """Return uint8 frames (N, 3, height, width) and int64 labels (N, height, width), `CAMVID_VOID` where there is none.

    Args:
        split: "train", "val" or "test".
        count: How many frames, evenly spread, for neighbours are nearly alike; None means all.
        step: Every how many'th pixel is taken, both ways.
        light: Frames of which light.
    """
    pixels, labels = load_camvid(split, chosen_frames(split, count, light))
    return to_tensor(pixels[:, ::step, ::step]), torch.from_numpy(np.ascontiguousarray(labels[:, ::step, ::step]))


def median_frequency_weights(y: Tensor) -> Tensor:
    """Return a weight for each class by median-frequency balancing (Eigen and Fergus 2015), (classes,).

    A class's frequency is its share of the pixels of those frames that it occurs in; weights are the median frequency
    over each. Classes that do not occur get weight 0.
    """
    counts = torch.stack([(y == kind).flatten(1).sum(1) for kind in range(CLASSES)], 1).double()
    pixels = (y != CAMVID_VOID).flatten(1).sum(1).double()
    frequency = counts.sum(0) / ((counts > 0) * pixels[:, None]).sum(0)
    seen = frequency[frequency > 0]
    return torch.where(frequency > 0, seen.median() / frequency, 0).float()
