"""Predict images one by one and write their maps, unless they exist already; and scale them down for a page."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..engines import MonteCarlo
from ..errors import InputError
from ..posterior import Posterior
from ..predictive import ClassificationPredictive
from ..report import MappedImage
from ..writing import write_bytes
from .images import (
    LEVELS,
    ImageMaps,
    digest_of_posterior,
    filled_up,
    in_size,
    label_png,
    network_input,
    pillow,
    png,
    read_file,
    read_image,
    read_labels,
    store_numbers,
    stored_numbers,
    within_memory,
)
from .networks import MapSettings

# The longer side of an image on the page, in pixels.
LONGEST = 480

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

    def predict(x: Tensor) -> Any:
        return posterior.predict(x, MonteCarlo(samples), keep="summary", tile=tile, overlap=overlap)

    image_maps = []
    for number, (path, name) in enumerate(zip(paths, names, strict=True), 1):
        # Each file is read once, so that its digest is that of the pixels.
        content, truth_file = read_file(path), truths.get(name)
        truth_content = b"" if truth_file is None else read_file(truth_file, "truth")
        digests = [hashlib.sha256(part).hexdigest() for part in (content, truth_content)]
        key = hashlib.sha256(json.dumps([common, *digests, truth_file is not None]).encode()).hexdigest()
        labels, entropy = (out / folder / f"{name}.png" for folder in ("labels", "entropy"))
        numbers = out / "numbers" / f"{name}.json"
        values = stored_numbers(labels, entropy, key, numbers)
        if values is None:
            with within_memory(path):
                pixels = read_image(path, len(settings.mean), content)
                true = None if truth_file is None else read_labels(truth_file, truth_content)
                if true is not None and true.shape != pixels.shape[:2]:
                    raise InputError(
                        f"truth: {truth_file} has {true.shape} pixels (height, width), but its image has "
                        f"{pixels.shape[:2]}. Use the same size."
                    )
                values, labels_png, entropy_png = _mapped(predict, pixels, true, settings)
            write_bytes(labels, labels_png)
            write_bytes(entropy, entropy_png)
            store_numbers(values, labels_png, entropy_png, key, numbers)
        image_maps.append(ImageMaps.from_numbers(path, labels, entropy, values))
        if progress is not None:
            progress(number, len(paths))
    image_maps.sort(key=lambda maps: -maps.mean_entropy)
    write_bytes(out / "images.csv", _csv(image_maps).encode())
    return image_maps


def _mapped(
    predict: Callable[[Tensor], Any], pixels: NDArray[np.uint8], true: NDArray[np.int64] | None, settings: MapSettings
) -> tuple[dict[str, Any], bytes, bytes]:
    """Return the numbers of the maps of an image as JSON values, and the content of the files of labels and entropy."""
    size = pixels.shape[0], pixels.shape[1]
    x = network_input(pixels, settings)[None]
    filled = filled_up(x, settings.multiple)
    predictive = predict(filled)
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
        height, width = (round(side * inner / whole) for side, inner, whole in sides)
        return values[0, :height, :width].cpu()

    most = float(np.log(count))
    labels = in_size(cut(predictive.label), size, smooth=False).numpy().astype(np.int64)
    uncertainty = in_size(cut(predictive.entropy).float().clamp(0, most) / most, size, smooth=True).numpy()
    level = np.minimum((uncertainty * LEVELS).astype(np.int64), LEVELS - 1)
    has_class = None if true is None else labelled_pixels(true, count, settings.ignore)

    def counts(counted: NDArray[np.bool_]) -> list[int]:
        levels: list[int] = np.bincount(level[counted], minlength=LEVELS).tolist()
        return levels

    numbers = {
        "mean_entropy": float(uncertainty.mean()),
        "mean_mutual_information": float(cut(predictive.mutual_information).float().mean()) / most,
        "classes": count,
        "counts": counts(np.ones_like(labels, bool)),
        "right": None if has_class is None else counts(has_class & (true == labels)),
        "known": None if has_class is None else counts(has_class),
    }
    grey = pillow().fromarray(np.round(uncertainty * _WHITE).astype(np.uint16))
    return numbers, label_png(labels, settings.class_colours(count)), png(grey)


def labelled_pixels(true: NDArray[np.int64], classes: int, ignore: int | None) -> NDArray[np.bool_]:
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
    files = {path.stem: path for path in sorted(folder.iterdir()) if path.is_file()} if folder.is_dir() else {}
    missing = [name for name in names if name not in files]
    if missing:
        raise InputError(
            f"truth: {folder} has no file for {missing[0]}. It must have a file with the same name for every image."
        )
    return {name: files[name] for name in names}


def _csv(image_maps: Sequence[ImageMaps]) -> str:
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["image", "entropy", "mutual_information", "accuracy", "labels", "entropy_map"])
    for maps in image_maps:
        accuracy = "" if maps.accuracy is None else f"{maps.accuracy:.4f}"
        numbers = [f"{maps.mean_entropy:.5f}", f"{maps.mean_mutual_information:.5f}", accuracy]
        writer.writerow([str(maps.path), *numbers, f"labels/{maps.labels.name}", f"entropy/{maps.entropy.name}"])
    return target.getvalue()


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
        wrong = "" if truth is None else _png_data(_wrong(opened, maps, settings, truth, size))
    target = io.BytesIO()
    photo.resize(size, image.Resampling.LANCZOS).save(target, format="JPEG", quality=82)
    parts = _data("jpeg", target.getvalue()), _png_data(labels), _png_data(grey.resize(size, image.Resampling.NEAREST))
    return MappedImage(maps.path.name, *parts, wrong, size, maps.mean_entropy, maps.accuracy)


def _wrong(opened: Any, maps: ImageMaps, settings: MapSettings, truth: Path, size: tuple[int, int]) -> Any:
    """Return an image of the pixels that have a true class and are predicted wrongly."""
    true = read_labels(next(path for path in sorted(truth.iterdir()) if path.stem == maps.labels.stem))
    predicted = np.asarray(opened).astype(np.int64)
    labelled = labelled_pixels(true, maps.classes, settings.ignore)
    picture = pillow().fromarray(np.where(labelled & (true != predicted), 255, 0).astype(np.uint8))
    return picture.resize(size, pillow().Resampling.NEAREST)


def _data(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _png_data(picture: Any) -> str:
    return _data("png", png(picture))
