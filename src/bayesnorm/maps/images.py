"""Image files as network input, and maps as PNG files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

from ..errors import InputError, MissingExtraError
from .settings import MapSettings

ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

# Pixels of a file that is read; Pillow warns of images that fill memory when unpacked.
MOST_PIXELS = 2**28


def pillow() -> Any:
    """Return Pillow's Image, or say how to get it."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("images need Pillow: pip install pillow.") from error
    return Image


def image_files(folder: Path, argument: str = "folder") -> list[Path]:
    """Return the image files of a folder and of the folders in it, in the order of their names."""
    if not folder.is_dir():
        raise InputError(f"{argument}: {folder} is no folder; one with images would work.")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not found:
        raise InputError(f"{argument}: {folder} holds no image ({', '.join(ENDINGS)}).")
    return found


def read_image(path: Path, channels: int = 3) -> NDArray[np.uint8]:
    """Return an image as (height, width, channels) bytes, turned as its camera says."""
    image = pillow()
    from PIL import ImageOps

    try:
        with image.open(path) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise InputError(
                    f"images: {path} has {opened.width} x {opened.height} pixels; {MOST_PIXELS} would work."
                )
            pixels = np.asarray(ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB"))
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        raise InputError(f"images: {path} cannot be read as an image ({error}).") from error
    return pixels[..., None] if pixels.ndim == 2 else pixels


def network_input(pixels: NDArray[np.uint8], settings: MapSettings) -> Tensor:
    """Return an image as a network takes it, (channels, height, width), in the settings' size."""
    x = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div_(255)
    if settings.size is not None and x.shape[1:] != settings.size:
        x = F.interpolate(x[None], settings.size, mode="bilinear", antialias=True, align_corners=False)[0]
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (settings.mean, settings.std))
    return (x - mean) / std


def filled_up(x: Tensor, multiple: int) -> Tensor:
    """Return images (batch, channels, height, width) with their mirror image at the right and below."""
    below, right = (-x.shape[2] % multiple, -x.shape[3] % multiple)
    return F.pad(x, (0, right, 0, below), mode="reflect" if max(below, right) < min(x.shape[2:]) else "replicate")


class ImageFiles(Dataset[Tensor]):
    """Image files as the rows of a training set, read when they are asked for.

    Args:
        paths: The files.
        settings: How images become network input. Without a size, all files must have the same.
    """

    def __init__(self, paths: Sequence[Path], settings: MapSettings) -> None:
        self.paths, self.settings = list(paths), settings

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        x = network_input(read_image(self.paths[row], len(self.settings.mean)), self.settings)
        return filled_up(x[None], self.settings.multiple)[0]


def read_labels(path: Path) -> NDArray[np.int64]:
    """Return a map of class numbers, (height, width), from a grey, 16-bit or palette image."""
    try:
        with pillow().open(path) as opened:
            if opened.mode not in ("L", "P", "I", "I;16", "1"):
                raise InputError(f"truth: {path} is an image of colours ({opened.mode}); class numbers would work.")
            return np.asarray(opened).astype(np.int64)
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"truth: {path} cannot be read as an image ({error}).") from error


def label_png(labels: NDArray[np.int64], colours: Sequence[tuple[int, int, int]]) -> bytes:
    """Return class numbers as a PNG: with a palette of their colours, or 16 bits where there are more than 256."""
    if len(colours) > 256:
        return png(pillow().fromarray(labels.astype(np.uint16)))
    picture = pillow().fromarray(labels.astype(np.uint8), mode="P")
    picture.putpalette([value for colour in colours for value in colour])
    return png(picture)


def png(picture: Any) -> bytes:
    """Return a picture as the bytes of a PNG file."""
    target = io.BytesIO()
    picture.save(target, format="PNG")
    return target.getvalue()


def resized(values: Tensor, size: tuple[int, int], smooth: bool) -> Tensor:
    """Return a map (height, width) in another size: by interpolation, or each pixel as its nearest one."""
    if values.shape == size:
        return values
    options: dict[str, Any] = {"mode": "bilinear", "align_corners": False} if smooth else {"mode": "nearest-exact"}
    return F.interpolate(values[None, None].float(), size, **options)[0, 0].to(values.dtype)
