"""Predict images one by one and write their maps; maps of the same inputs that exist already are kept."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..engines import MonteCarlo
from ..errors import InputError
from ..files import write_bytes
from ..posterior import Posterior
from ..predictive import ClassificationPredictive
from .images import (
    filled_up,
    label_png,
    network_input,
    pillow,
    png,
    read_file,
    read_image,
    read_labels,
    resized,
    within_memory,
)
from .settings import MapSettings
from .stored import LEVELS, ImageMaps, digest_of_posterior, store_maps, stored_maps

# The largest 16-bit value.
_WHITE = 65535


def map_images(
    posterior: Posterior,
    paths: Sequence[Path],
    settings: MapSettings,
    out: Path,
    *,
    samples: int = 16,
    tile: tuple[int, int] | None = None,
    overlap: int | None = None,
    truth: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[ImageMaps]:
    """Write maps of the labels and the predictive entropy of images, in the size of each image.

    Args:
        posterior: The posterior of a segmentation network.
        paths: The images.
        settings: How images become network input.
        out: The output folder, for labels/, entropy/, numbers/ and `images.csv`, a table sorted by mean entropy.
        samples: The number of samples per image.
        tile, overlap: For images too large for one forward pass; see `Posterior.predict`.
        truth: A folder with images of true class numbers, with the same names as the images; None if not known.
        progress: A function called with (done, total) after every image.

    Returns:
        The maps of all images, highest mean entropy first.
    """
    names = _names(paths)
    for folder in ("labels", "entropy", "numbers"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    truths = _truths(names, truth)
    how = {"samples": samples, "tile": tile, "overlap": overlap}
    common = json.dumps([digest_of_posterior(posterior), settings.as_json(), how], sort_keys=True)
    found = []
    for number, (path, name) in enumerate(zip(paths, names, strict=True), 1):
        image = _Image(path, read_file(path), truths.get(name), b"")
        if image.truth is not None:
            image = replace(image, truth_content=read_file(image.truth, "truth"))
        key = image.digest(common)
        labels, entropy = (out / folder / f"{name}.png" for folder in ("labels", "entropy"))
        numbers = out / "numbers" / f"{name}.json"
        maps = stored_maps(path, labels, entropy, key, numbers)
        if maps is None:
            with within_memory(path):
                maps, labels_png, entropy_png = _mapped(posterior, image, labels, entropy, settings, **how)
            store_maps(maps, key, labels_png, entropy_png, numbers)
        found.append(maps)
        if progress is not None:
            progress(number, len(paths))
    found.sort(key=lambda maps: -maps.mean_entropy)
    write_bytes(out / "images.csv", _csv(found).encode())
    return found


@dataclass(frozen=True)
class _Image:
    """An image and its true classes; each file is read once, so that its digest is that of the pixels."""

    path: Path
    content: bytes
    truth: Path | None
    truth_content: bytes

    def digest(self, common: str) -> str:
        """Return the SHA-256 of both files and of what all images have in common."""
        contents = [hashlib.sha256(content).hexdigest() for content in (self.content, self.truth_content)]
        return hashlib.sha256(json.dumps([common, *contents, self.truth is not None]).encode()).hexdigest()


def _mapped(
    posterior: Posterior, image: _Image, labels_path: Path, entropy_path: Path, settings: MapSettings, **how: Any
) -> tuple[ImageMaps, bytes, bytes]:
    """Return the maps of an image, and the content of the files of labels and entropy."""
    pixels = read_image(image.path, len(settings.mean), image.content)
    size = pixels.shape[0], pixels.shape[1]
    x = network_input(pixels, settings)[None]
    filled = filled_up(x, settings.multiple)
    predictive = posterior.predict(
        filled,
        MonteCarlo(how["samples"]),
        keep="summary",
        tile=how["tile"],
        overlap=how["overlap"],
    )
    if not isinstance(predictive, ClassificationPredictive) or predictive.probs.dim() != 4:
        shape = tuple(getattr(predictive, "probs", predictive.mean).shape)
        raise InputError(
            "model must return class scores for every pixel, of shape (1, class, height, width), for one image, got "
            f"shape {shape}."
        )
    count = predictive.probs.shape[1]
    settings.class_names(count)

    def cut(values: Tensor) -> Tensor:
        # Outputs can be smaller than inputs; the padding is cut off in proportion.
        sides = zip(values.shape[1:], x.shape[2:], filled.shape[2:], strict=True)
        height, width = (round(side * given / whole) for side, given, whole in sides)
        return values[0, :height, :width].cpu()

    most = float(np.log(count))
    labels = resized(cut(predictive.label), size, smooth=False).numpy().astype(np.int64)
    uncertainty = resized(cut(predictive.entropy).float().clamp(0, most) / most, size, smooth=True).numpy()
    epistemic = float(cut(predictive.mutual_information).float().mean()) / most
    level = np.minimum((uncertainty * LEVELS).astype(np.int64), LEVELS - 1)
    right = known = None
    if image.truth is not None:
        true = read_labels(image.truth, image.truth_content)
        if true.shape != size:
            raise InputError(
                f"truth: {image.truth} has {true.shape} pixels (height, width), but its image has {size}. Use the same "
                "size."
            )
        seen = known_pixels(true, count, settings.ignore)
        known = np.bincount(level[seen], minlength=LEVELS)
        right = np.bincount(level[seen & (true == labels)], minlength=LEVELS)
    maps = ImageMaps(
        image.path,
        labels_path,
        entropy_path,
        float(uncertainty.mean()),
        epistemic,
        count,
        np.bincount(level.ravel(), minlength=LEVELS),
        right,
        known,
    )
    grey = pillow().fromarray(np.round(uncertainty * _WHITE).astype(np.uint16))
    return maps, label_png(labels, settings.class_colours(count)), png(grey)


def known_pixels(true: NDArray[np.int64], classes: int, ignore: int | None) -> NDArray[np.bool_]:
    """Return which pixels of a map of true class numbers have a class."""
    return (true < classes) & (true != (-1 if ignore is None else ignore))


def _names(paths: Sequence[Path]) -> list[str]:
    """Return names for the maps: the image's name, with its folder's name if two images have the same name."""
    stems = Counter(path.stem for path in paths)
    named = [path.stem if stems[path.stem] == 1 else f"{path.parent.name}_{path.name}" for path in paths]
    twice = next((name for name, count in Counter(named).items() if count > 1), None)
    if twice is not None:
        raise InputError(f"images: two are called {twice}. Rename one of them, or map one folder at a time.")
    return named


def _truths(names: Sequence[str], folder: Path | None) -> dict[str, Path]:
    """Return the file of true classes of each image, or raise an error if one is missing."""
    if folder is None:
        return {}
    found = {path.stem: path for path in sorted(folder.iterdir()) if path.is_file()} if folder.is_dir() else {}
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(
            f"truth: {folder} has no file for {missing[0]}. It must have a file with the same name for every image."
        )
    return {name: found[name] for name in names}


def _csv(found: Sequence[ImageMaps]) -> str:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["image", "entropy", "mutual_information", "accuracy", "labels", "entropy_map"])
    for maps in found:
        accuracy = "" if maps.accuracy is None else f"{maps.accuracy:.4f}"
        numbers = [f"{maps.mean_entropy:.5f}", f"{maps.mean_mutual_information:.5f}", accuracy]
        writer.writerow([str(maps.path), *numbers, f"labels/{maps.labels.name}", f"entropy/{maps.entropy.name}"])
    return target.getvalue()
