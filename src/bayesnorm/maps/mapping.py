"""Predict images one by one and write their maps; images that are already done are skipped."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from .images import filled_up, label_png, network_input, pillow, png, read_image, read_labels, resized
from .settings import MapSettings

# The number of levels of entropy, from 0 to its maximum, by which pixels are counted.
LEVELS = 256

# The largest 16-bit value.
_WHITE = 65535


@dataclass(frozen=True)
class ImageMaps:
    """The maps of one image. Entropy and mutual information are shares of the maximum entropy, ln(classes).

    Args:
        path: The image.
        labels: The file of predicted classes.
        entropy: The file of the predictive entropy as a share of its maximum: 16-bit greyscale, white is 1.
        mean_entropy: The mean predictive entropy over pixels.
        mean_mutual_information: The mean mutual information over pixels.
        classes: The number of classes of the network.
        counts: The number of pixels at each level of entropy, (LEVELS,).
        right: The number of correctly predicted pixels at each level; None without true classes.
        known: The number of pixels with a true class at each level; None without true classes.
    """

    path: Path
    labels: Path
    entropy: Path
    mean_entropy: float
    mean_mutual_information: float
    classes: int
    counts: NDArray[np.int64]
    right: NDArray[np.int64] | None = None
    known: NDArray[np.int64] | None = None

    @property
    def accuracy(self) -> float | None:
        """The share of correctly predicted pixels; None without true classes."""
        return None if self.right is None or self.known is None else float(self.right.sum() / max(1, self.known.sum()))


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
    found = []
    for number, (path, name) in enumerate(zip(paths, names, strict=True), 1):
        found.append(
            _kept(path, name, out, truth is not None)
            or _mapped(
                posterior,
                path,
                name,
                settings,
                out,
                samples=samples,
                tile=tile,
                overlap=overlap,
                truth=truths.get(name),
            )
        )
        if progress is not None:
            progress(number, len(paths))
    found.sort(key=lambda each: -each.mean_entropy)
    write_bytes(out / "images.csv", _csv(found).encode())
    return found


def _mapped(
    posterior: Posterior, path: Path, name: str, settings: MapSettings, out: Path, *, truth: Path | None, **how: Any
) -> ImageMaps:
    pixels = read_image(path, len(settings.mean))
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
    if truth is not None:
        true = read_labels(truth)
        if true.shape != size:
            raise InputError(
                f"truth: {truth} has {true.shape} pixels (height, width), but its image has {size}. Use the same size."
            )
        seen = known_pixels(true, count, settings.ignore)
        known = np.bincount(level[seen], minlength=LEVELS)
        right = np.bincount(level[seen & (true == labels)], minlength=LEVELS)
    maps = ImageMaps(
        path,
        out / "labels" / f"{name}.png",
        out / "entropy" / f"{name}.png",
        float(uncertainty.mean()),
        epistemic,
        count,
        np.bincount(level.ravel(), minlength=LEVELS),
        right,
        known,
    )
    write_bytes(maps.labels, label_png(labels, settings.class_colours(count)))
    write_bytes(maps.entropy, png(pillow().fromarray(np.round(uncertainty * _WHITE).astype(np.uint16))))
    # Last, because this file marks the image as done.
    write_bytes(out / "numbers" / f"{name}.json", json.dumps(_numbers(maps)).encode())
    return maps


def known_pixels(true: NDArray[np.int64], classes: int, ignore: int | None) -> NDArray[np.bool_]:
    """Return which pixels of a map of true class numbers have a class."""
    return (true < classes) & (true != (-1 if ignore is None else ignore))


def _kept(path: Path, name: str, out: Path, with_truth: bool) -> ImageMaps | None:
    """Return the maps of an image from an earlier run, or None."""
    numbers = out / "numbers" / f"{name}.json"
    labels, uncertainty = (out / folder / f"{name}.png" for folder in ("labels", "entropy"))
    if not all(file.exists() for file in (numbers, labels, uncertainty)):
        return None
    told = json.loads(numbers.read_text())
    if with_truth and told["right"] is None:
        return None
    arrays = {key: None if told[key] is None else np.array(told[key]) for key in ("counts", "right", "known")}
    means = told["mean_entropy"], told["mean_mutual_information"]
    return ImageMaps(path, labels, uncertainty, *means, told["classes"], **arrays)  # type: ignore[arg-type]


def _numbers(maps: ImageMaps) -> dict[str, Any]:
    plain = {name: getattr(maps, name) for name in ("counts", "right", "known")}
    told = {name: None if value is None else value.tolist() for name, value in plain.items()}
    return told | {name: getattr(maps, name) for name in ("mean_entropy", "mean_mutual_information", "classes")}


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
