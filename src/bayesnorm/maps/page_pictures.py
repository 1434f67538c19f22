"""Images and their maps, encoded for an HTML page."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np

from ..report import MappedImage
from .images import pillow, png, read_image, read_labels
from .mapping import known_pixels
from .settings import MapSettings
from .stored import ImageMaps

# The longer side of an image on the page, in pixels.
LONGEST = 480


def mapped_image(maps: ImageMaps, settings: MapSettings, truth: Path | None) -> MappedImage:
    """Return an image and its maps for the page, scaled down.

    Args:
        maps: The maps of the image.
        settings: The settings, for the label of pixels without a class.
        truth: The folder with true class numbers, or None.
    """
    image = pillow()
    photo = image.fromarray(read_image(maps.path))
    scale = min(1.0, LONGEST / max(photo.size))
    size = max(1, round(photo.width * scale)), max(1, round(photo.height * scale))
    with image.open(maps.labels, formats=["PNG"]) as opened, image.open(maps.entropy, formats=["PNG"]) as entropy:
        labels = opened.convert("RGB").resize(size, image.Resampling.NEAREST)
        grey = image.fromarray((np.asarray(entropy).astype(np.uint32) // 257).astype(np.uint8))
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
    """Return an image of the pixels that have a true class and are predicted wrongly."""
    true = read_labels(next(path for path in sorted(truth.iterdir()) if path.stem == maps.labels.stem))
    predicted = np.asarray(opened).astype(np.int64)
    known = known_pixels(true, maps.classes, settings.ignore)
    picture = pillow().fromarray(np.where(known & (true != predicted), 255, 0).astype(np.uint8))
    return picture.resize(size, pillow().Resampling.NEAREST)


def _data(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
