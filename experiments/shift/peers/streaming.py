"""Streams of corrupted test images, several side by side."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesnorm.writing import write_bytes

from ...data import IMAGENET_MEAN, IMAGENET_STD, load_cifar10
from ..corruptions import CORRUPTIONS, Images, corrupt
from ..frost import FROST, frost, has_photographs
from ..networks import CLEAN
from ..streams import stream_order, stream_sequence

Condition = tuple[str, int]
"""A corruption and its severity; `CLEAN` and 0 for images as they are."""

_SEEDS = (CLEAN, *CORRUPTIONS, FROST)


def corruptions() -> tuple[str, ...]:
    """Return the names of all corruptions: fifteen, or fourteen without the photographs of frost."""
    return (*CORRUPTIONS, FROST) if has_photographs() else tuple(CORRUPTIONS)


def conditions(severity: int, names: Sequence[str]) -> list[Condition]:
    """Return clean images, and these corruptions at a severity."""
    return [(CLEAN, 0), *((name, severity) for name in names)]


def corrupted_images(corruption: str, severity: int, count: int) -> Images:
    """Return the first test images after a corruption."""
    images = load_cifar10("test", count)[0]
    if corruption == CLEAN:
        return images
    return frost(images, severity) if corruption == FROST else corrupt(images, corruption, severity)


def image_file(folder: Path, condition: Condition) -> Path:
    """Return the file of the images of a condition."""
    return folder / f"{condition[0]}_{condition[1]}.npy"


def make_images(folder: Path, condition: Condition, count: int) -> None:
    """Write the images of a condition, unless they are there."""
    path = image_file(folder, condition)
    if not path.exists():
        file = io.BytesIO()
        np.save(file, corrupted_images(*condition, count))
        write_bytes(path, file.getvalue())


@lru_cache(maxsize=32)
def loaded(folder: Path, condition: Condition, device: str) -> Tensor:
    """Return the images of a condition, uint8 (N, 32, 32, 3)."""
    return torch.from_numpy(np.load(image_file(folder, condition))).to(device)


@lru_cache(maxsize=1)
def test_labels(count: int) -> Tensor:
    """Return the labels of the first test images."""
    return torch.as_tensor(load_cifar10("test", count)[1])


@dataclass(frozen=True)
class Streams:
    """G streams of L images.

    Args:
        images: The images of all conditions, each uint8 (N, 32, 32, 3).
        condition: The place of each image's condition in `images`, (L, G).
        number: The number of each image, (L, G).
        labels: Its label, (L, G).
    """

    images: Sequence[Tensor]
    condition: Tensor
    number: Tensor
    labels: Tensor

    def batches(self, size: int) -> Iterator[Tensor]:
        """Return so many images of each stream after another, as network input (B, G, 3, 32, 32)."""
        device = self.images[0].device
        mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
        for condition, number in zip(self.condition.split(size), self.number.split(size), strict=True):
            pixels = torch.empty(*condition.shape, 32, 32, 3, dtype=torch.uint8, device=device)
            for place in condition.unique().tolist():
                here = condition == place
                pixels[here.to(device)] = self.images[place][number[here].to(device)]
            yield (pixels.permute(0, 1, 4, 2, 3).float() / 255 - mean) / std


def order_streams(
    folder: Path, where: Sequence[Condition], orders: Sequence[str], length: int, size: int, taken: range, device: str
) -> Streams:
    """Return a stream of every condition in every order: first all conditions in the first order, and so on.

    Args:
        folder: Folder of the images.
        where: The conditions.
        orders: Orders of `stream_order`.
        length: Images of a stream.
        size: Images of a batch.
        taken: The test images that the streams take.
        device: The device.
    """
    labels, available = test_labels(taken.stop), torch.tensor(taken)
    columns = [
        # The seed belongs to the corruption, whichever others are measured.
        torch.cat(stream_order(order, labels, available, length, size, seed=_SEEDS.index(corruption)))
        for order in orders
        for corruption, _ in where
    ]
    number = torch.stack(columns, 1)
    condition = torch.arange(len(where)).repeat(len(orders)).expand(length, -1)
    return Streams([loaded(folder, part, device) for part in where], condition, number, labels[number])


def sequence_streams(
    folder: Path, where: Sequence[Condition], orders: Sequence[str], length: int, size: int, taken: range, device: str
) -> Streams:
    """Return one stream for every order, with one corruption after the other, and clean images at the end.

    The corruptions come in another random succession in each stream. The clean images are the first condition.
    """
    labels, available = test_labels(taken.stop), torch.tensor(taken)
    numbers, places = [], []
    for seed, order in enumerate(orders):
        succession = [*np.random.default_rng(seed).permutation(np.arange(1, len(where))).tolist(), 0]
        segments = stream_sequence([where[place] for place in succession], order, labels, available, length, size, seed)
        numbers.append(torch.cat([torch.cat(segment.batches) for segment in segments]))
        places.append(torch.tensor(succession).repeat_interleave(length))
    number, condition = torch.stack(numbers, 1), torch.stack(places, 1)
    return Streams([loaded(folder, part, device) for part in where], condition, number, labels[number])
