"""Images and their maps as pictures that a page can hold."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from ..report import MappedImage
from .images import pillow, png, read_image, read_labels
from .mapping import ImageMaps, known_pixels
from .settings import MapSettings

# Pixels of a picture's longer side.
LONGEST = 480


def mapped_image(maps: ImageMaps, settings: MapSettings, truth: Path | None) -> MappedImage:
    """Return an image as the page shows it, made smaller.

    Args:
        maps: What was found of it.
        settings: Which true label stands for no class.
        truth: Folder with true class numbers, if there is one.
    """
    image = pillow()
    photo = image.fromarray(read_image(maps.path))
    scale = min(1.0, LONGEST / max(photo.size))
    size = max(1, round(photo.width * scale)), max(1, round(photo.height * scale))
    with image.open(maps.labels) as opened, image.open(maps.uncertainty) as uncertainty:
        labels = opened.convert("RGB").resize(size, image.Resampling.NEAREST)
        grey = image.fromarray((np.asarray(uncertainty).astype(np.uint32) // 257).astype(np.uint8))
        wrong = "" if truth is None else _data("png", png(_wrong(opened, maps, settings, truth, size)))
    target = io.BytesIO()
    photo.resize(size, image.Resampling.LANCZOS).save(target, format="JPEG", quality=82)
    shown = png(grey.resize(size, image.Resampling.NEAREST))
    return MappedImage(
        maps.path.name,
        _data("jpeg", target.getvalue()),
        _data("png", png(labels)),
        _data("png", shown),
        wrong,
        size,
        maps.mean_entropy,
        maps.accuracy,
    )


def _wrong(opened: Any, maps: ImageMaps, settings: MapSettings, truth: Path, size: tuple[int, int]) -> Any:
    """Return a picture of the pixels whose class is known and wrong."""
    true = read_labels(next(path for path in sorted(truth.iterdir()) if path.stem == maps.labels.stem))
    predicted = np.asarray(opened).astype(np.int64)
    known = known_pixels(true, maps.classes, settings.ignore)
    picture = pillow().fromarray(np.where(known & (true != predicted), 255, 0).astype(np.uint8))
    return picture.resize(size, pillow().Resampling.NEAREST)


def _data(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
