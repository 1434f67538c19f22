"""Load whole image sets that `python -m experiments data get` wrote: one NumPy archive of bytes per split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bayesnorm.errors import BayesNormError, FileFormatError

from .archives import read_npz
from .folders import find
from .rows import Rows, row_numbers

Images = NDArray[np.uint8]
ClassNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class WholeSet:
    """Properties of an image set.

    Args:
        shape: Shape of one image.
        classes: Number of classes.
        splits: Number of images in each split.
    """

    shape: tuple[int, ...]
    classes: int
    splits: dict[str, int]


WHOLE_SETS: dict[str, WholeSet] = {
    "cifar10": WholeSet((32, 32, 3), 10, {"train": 50_000, "test": 10_000}),
    "cifar100": WholeSet((32, 32, 3), 100, {"train": 50_000, "test": 10_000}),
    "mnist": WholeSet((28, 28), 10, {"train": 60_000, "test": 10_000}),
    "fashion-mnist": WholeSet((28, 28), 10, {"train": 60_000, "test": 10_000}),
    "svhn": WholeSet((32, 32, 3), 10, {"train": 73_257, "test": 26_032}),
}


def whole_file(name: str, split: str) -> str:
    """Return the path of a split in a data folder: an archive with images `x` and labels `y`."""
    if split not in WHOLE_SETS[name].splits:
        raise BayesNormError(f"split must be one of {', '.join(WHOLE_SETS[name].splits)}, got {split!r}.")
    return f"{name}/{split}.npz"


def load_whole(name: str, split: str, rows: Rows = None) -> tuple[Images, ClassNumbers]:
    """Return images (N, ...) of a whole set and their labels (N,), or refuse a file with other content."""
    path = find(whole_file(name, split))
    images, labels = read_npz(path, "x", "y")
    try:
        require_whole_split(name, split, images, labels)
    except ValueError as error:
        raise FileFormatError(
            f"{path} {error}. Run `python -m experiments data get {name} --force` to download it again."
        ) from error
    chosen = row_numbers(rows, len(images))
    return images[chosen] if rows is not None else images, labels[chosen].astype(np.int64)


def require_whole_split(name: str, split: str, images: NDArray[Any], labels: NDArray[Any]) -> None:
    """Refuse arrays that are not all images of a split; the ValueError describes the difference."""
    made, count = WHOLE_SETS[name], WHOLE_SETS[name].splits[split]
    if images.dtype != np.uint8 or images.shape[1:] != made.shape:
        raise ValueError(f"has images {images.shape} of {images.dtype} instead of {(count, *made.shape)} of uint8")
    if len(images) != count or labels.shape != (count,):
        raise ValueError(f"has {len(images):,} images and {labels.size:,} labels instead of all {count:,} of {split}")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= made.classes:
        raise ValueError(f"has labels other than 0 to {made.classes - 1}")


def load_cifar100(split: str = "test", rows: Rows = None) -> tuple[Images, ClassNumbers]:
    """Return CIFAR-100: 50,000 training images (`split="train"`) or 10,000 test images, with the fine labels.

    Returns:
        uint8 images (N, 32, 32, 3) and int64 labels (N,) from 0 to 99.
    """
    return load_whole("cifar100", split, rows)


def load_mnist(split: str = "test", rows: Rows = None) -> tuple[Images, ClassNumbers]:
    """Return MNIST: 60,000 training digits (`split="train"`) or 10,000 test digits.

    Returns:
        uint8 images (N, 28, 28) and int64 labels (N,), the digit itself.
    """
    return load_whole("mnist", split, rows)


def load_fashion_mnist(split: str = "test", rows: Rows = None) -> tuple[Images, ClassNumbers]:
    """Return Fashion-MNIST: 60,000 training images of clothes (`split="train"`) or 10,000 test images.

    Returns:
        uint8 images (N, 28, 28) and int64 labels (N,) into `FASHION_MNIST_CLASSES`.
    """
    return load_whole("fashion-mnist", split, rows)
