"""Load CIFAR-10, SVHN, notMNIST and CamVid as uint8 arrays, and prepare images for the ResNets.

CIFAR-10, SVHN and CamVid are stored as *sheets*: one lossless WebP image with all images side by side, left to right,
then top to bottom.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesnorm.errors import BayesNormError, FileFormatError, InputError, MissingExtraError

from .archives import read_npz
from .folders import DataNotFoundError, find, find_first
from .rows import Rows, row_numbers
from .whole_sets import WHOLE_SETS, ClassNumbers, Images, load_whole, whole_file

CIFAR10_CLASSES: tuple[str, ...] = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
FASHION_MNIST_CLASSES: tuple[str, ...] = (
    "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
NOTMNIST_CLASSES: tuple[str, ...] = tuple("ABCDEFGHIJ")
CAMVID_CLASSES: tuple[str, ...] = (
    "sky", "building", "pole", "road", "pavement", "tree", "sign", "fence", "car", "pedestrian", "bicyclist",
)  # fmt: skip
# Label of CamVid pixels that belong to no class; leave them out of losses and scores.
CAMVID_VOID = 11

IMAGENET_MEAN: tuple[float, float, float] = (0.485, 0.456, 0.406)
IMAGENET_STD: tuple[float, float, float] = (0.229, 0.224, 0.225)

_CIFAR10_LABELS = "cifar10/labels.npz"
_CIFAR10_SHEETS = {"test": "test_first2000", "train": "train_first5000"}
_SVHN_LABELS, _SVHN_SHEET = "svhn/labels.npz", "svhn/test_0.webp"
_CAMVID_LABELS = "camvid/labels_180x240.npz"
_CAMVID_SHEETS = {split: f"camvid/{split}_180x240.webp" for split in ("train", "val", "test")}
_NOTMNIST = "notmnist/notmnist_small.npz"

# Paths of files in a data folder that are not archives of a whole set, and the part of the set that they hold.
IMAGE_FILES: dict[str, tuple[str, ...]] = {
    "cifar10": (_CIFAR10_LABELS, *(f"cifar10/{sheet}.webp" for sheet in _CIFAR10_SHEETS.values())),
    "svhn": (_SVHN_LABELS, _SVHN_SHEET),
    "camvid": (_CAMVID_LABELS, *_CAMVID_SHEETS.values()),
    "notmnist": (_NOTMNIST,),
}
IMAGE_PARTS: dict[str, str] = {
    "cifar10": "the first 2,000 test and 5,000 training images",
    "svhn": "13,016 test digits, cut out of the photos",
}


def load_cifar10(split: str = "test", rows: Rows = None, *, whole: bool = False) -> tuple[Images, ClassNumbers]:
    """Return CIFAR-10: 50,000 training images (`split="train"`) or 10,000 test images, or the available part.

    The first data folder with any file of the split is used. It may have the whole split, or only its first 5,000
    training or 2,000 test images. `rows=2000` gives the same images in both cases.

    Args:
        split: "train" or "test".
        rows: The images to load; None means all that are available.
        whole: Whether to raise an error if only a part is available.

    Returns:
        uint8 images (N, 32, 32, 3) and int64 labels (N,) into `CIFAR10_CLASSES`.
    """
    if split not in _CIFAR10_SHEETS:
        raise BayesNormError(f"split must be 'test' or 'train', got {split!r}.")
    sheet, archive = f"cifar10/{_CIFAR10_SHEETS[split]}.webp", whole_file("cifar10", split)
    result = find_first(archive, sheet)
    if result.name != Path(archive).name and whole:
        try:
            result = find(archive)
        except DataNotFoundError as error:
            raise DataNotFoundError(f"cifar10: whole=True, but {_part(split)}") from error
    if result.name == Path(archive).name:
        return load_whole("cifar10", split, rows)
    (labels,) = read_npz(find(_CIFAR10_LABELS), _CIFAR10_SHEETS[split])
    hint = f" {_part(split)}"
    return _load_sheet(find(sheet), labels, rows, hint, height=32, width=32, per_row=100)


def _part(split: str) -> str:
    """Return a message that says which part of CIFAR-10 is available, and how to get the rest."""
    sheet = _CIFAR10_SHEETS[split]
    first, count = int(sheet.partition("first")[2]), WHOLE_SETS["cifar10"].splits[split]
    place = find(f"cifar10/{sheet}.webp").parent
    return (
        f"{place} has only the first {first:,} of {count:,} images. Run `python -m experiments data get cifar10` "
        "to download all of them."
    )


def load_svhn(rows: Rows = None, split: str = "test") -> tuple[Images, ClassNumbers]:
    """Return SVHN's cropped digits: 73,257 training (`split="train"`) or 26,032 test images, or the available part.

    The part is 13,016 digits of the test set, cut out of its street photos: real SVHN, but not pixel-identical to the
    usual `test_32x32.mat`. State this with any result from it. The first data folder with any of these files is used.

    Returns:
        uint8 images (N, 32, 32, 3) and int64 labels (N,), the digit itself.
    """
    archive = whole_file("svhn", split)
    if split != "test" or find_first(archive, _SVHN_SHEET).name == Path(archive).name:
        return load_whole("svhn", split, rows)
    (labels,) = read_npz(find(_SVHN_LABELS), "test_0")
    return _load_sheet(find(_SVHN_SHEET), labels, rows, height=32, width=32, per_row=100)


def load_camvid(split: str, rows: Rows = None) -> tuple[Images, ClassNumbers]:
    """Return CamVid road scenes at half size: 367 for `split="train"`, 101 for `"val"`, 233 for `"test"`.

    CC BY-NC 4.0: research only.

    Returns:
        uint8 images (N, 180, 240, 3) and int64 labels (N, 180, 240) into `CAMVID_CLASSES`, or `CAMVID_VOID`.
    """
    if split not in _CAMVID_SHEETS:
        raise BayesNormError(f"split must be one of {', '.join(_CAMVID_SHEETS)}, got {split!r}.")
    (labels,) = read_npz(find(_CAMVID_LABELS), split)
    return _load_sheet(find(_CAMVID_SHEETS[split]), labels, rows, height=180, width=240, per_row=20)


def load_notmnist(rows: Rows = None) -> tuple[Images, ClassNumbers]:
    """Return notMNIST small: 18,724 grey letters A to J in many typefaces.

    Returns:
        uint8 images (N, 28, 28) and int64 labels (N,) into `NOTMNIST_CLASSES`.
    """
    images, labels = read_npz(find(_NOTMNIST), "x", "y")
    chosen = row_numbers(rows, len(images))
    return images[chosen].astype(np.uint8, copy=False), labels[chosen].astype(np.int64)


def to_tensor(images: Images) -> Tensor:
    """Return uint8 images (N, H, W, 3), or grey ones (N, H, W), as a uint8 tensor (N, channels, H, W).

    This is the input of `bayesnorm.training.CropAndFlip`.
    """
    array = np.asarray(images)
    if array.dtype != np.uint8 or array.ndim not in (3, 4):
        raise InputError(
            f"images must be uint8 (N, H, W, 3) or grey (N, H, W), got shape {array.shape} of {array.dtype}."
        )
    planes = array[:, None] if array.ndim == 3 else array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(planes))


def to_network_input(images: Images) -> Tensor:
    """Return uint8 images as the normalised float32 tensor (N, 3, H, W) that the CIFAR ResNets expect.

    Values are scaled to [0, 1], then normalised per channel with `IMAGENET_MEAN` and `IMAGENET_STD`.

    Args:
        images: (N, H, W, 3), or grey (N, H, W), whose one channel is repeated three times.
    """
    array = np.asarray(images)
    if array.dtype != np.uint8:
        raise InputError(f"images must be uint8 from 0 to 255, got {array.dtype}.")
    if array.ndim == 3 and array.shape[-1] != 3:
        array = np.repeat(array[..., None], 3, axis=-1)
    if array.ndim != 4 or array.shape[-1] != 3:
        raise InputError(
            f"images must be (N, H, W, 3) or grey (N, H, W), got shape {array.shape}. For a single image, pass "
            "images[None]."
        )
    # One table look-up per value, so that no float copy of the whole set is needed.
    values = np.arange(256)[:, None] / 255.0
    table = ((values - IMAGENET_MEAN) / IMAGENET_STD).astype(np.float32)
    planes = [table[:, channel][array[..., channel]] for channel in range(3)]
    return torch.from_numpy(np.stack(planes, axis=1))


def _load_sheet(
    path: Path, labels: NDArray[Any], rows: Rows, hint: str = "", *, height: int, width: int, per_row: int
) -> tuple[Images, ClassNumbers]:
    """Return the chosen images of a sheet with a label for each, and their labels."""
    chosen = row_numbers(rows, len(labels), hint)
    images = cut_sheet(path, chosen, count=len(labels), height=height, width=width, per_row=per_row)
    return images, labels[chosen].astype(np.int64)


def cut_sheet(path: Path, rows: NDArray[np.intp], *, count: int, height: int, width: int, per_row: int) -> Images:
    """Return the images `rows` (n, height, width, 3) from a sheet of `count` images, with `per_row` images per row.

    The sheet's size is checked before any pixel is decoded. Pillow's limit against decompression bombs is not changed:
    the largest sheet (CamVid, 16 megapixels) is far below its default of 89.
    """
    pil_image = _pillow()
    expected = (per_row * width, -(-count // per_row) * height)
    try:
        with pil_image.open(path, formats=["WEBP"]) as sheet:
            if sheet.size != expected:
                raise ValueError(f"its width and height are {sheet.size} pixels instead of {expected}")
            pixels: Images = np.asarray(sheet.convert("RGB"))
    except pil_image.DecompressionBombError as error:
        raise BayesNormError(
            f"{path} is larger than this program allows Pillow to open: PIL.Image.MAX_IMAGE_PIXELS is "
            f"{pil_image.MAX_IMAGE_PIXELS}. Set it to at least {expected[0] * expected[1]}."
        ) from error
    except (OSError, ValueError, SyntaxError, EOFError) as error:
        raise FileFormatError(
            f"{path} cannot be read as a WebP sheet of {count} images: {error}. Download the file again."
        ) from error
    grid = pixels.reshape(-1, height, per_row, width, 3)
    return grid[rows // per_row, :, rows % per_row]


def open_pixels(source: Any, kind: str, mode: str = "RGB") -> Images:
    """Return the pixels (height, width, 3) of an image file of one format, such as "PNG"; without colours for "L"."""
    with _pillow().open(source, formats=[kind]) as picture:
        return np.asarray(picture.convert(mode))


def _pillow() -> Any:
    """Return Pillow's image module, or raise an error that says how to install it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("Image sheets need Pillow: pip install pillow") from error
    return Image
