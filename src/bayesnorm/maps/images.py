"""Read image files as network input, write maps as PNG files, and store maps under a digest of what they come from."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from ..errors import BayesNormError, InputError, load_package, quoted
from ..files import content_digest, read_json_file
from ..posterior import Posterior
from ..schema import listed, number, optional, record, text, whole
from ..writing import write_bytes
from .networks import MapSettings

ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")

# Pillow's names of the formats that are opened. It decodes all of them itself; for EPS it would start Ghostscript.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

# The largest number of pixels in a file; larger images could fill the memory.
MOST_PIXELS = 2**28


def pillow() -> Any:
    """Return Pillow's Image module, or raise an error that says how to install it."""
    return load_package("PIL.Image", "images need Pillow: pip install pillow.")


def image_files(folder: Path, argument: str = "folder") -> list[Path]:
    """Return the image files of a folder and its subfolders, sorted by name."""
    if not folder.is_dir():
        raise InputError(f"{argument}: {folder} is not a folder. Pass a folder with images.")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not paths:
        raise InputError(f"{argument}: {folder} has no images. Supported file types: {', '.join(ENDINGS)}.")
    for path in paths:
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in str(path)):
            raise InputError(f"{argument}: the name {quoted(str(path))} has control characters. Rename the file.")
    return paths


def read_file(path: Path, argument: str = "images") -> bytes:
    """Return the content of a file, or raise an error."""
    try:
        return path.read_bytes()
    except (OSError, MemoryError) as error:
        raise InputError(f"{argument}: {path} cannot be read ({error}). Remove or replace it.") from error


def decode(content: bytes, path: Path, convert: Callable[[Any], Any], argument: str = "images") -> NDArray[Any]:
    """Return the pixels of an image file after `convert`, or raise an error that names the file.

    Args:
        content: The content of the file.
        path: The file, for messages.
        convert: Returns the image to take the pixels of, from an opened one.
        argument: The name of the caller's argument, for messages.
    """
    image = pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata, and of sizes between Pillow's limit and twice that
            with image.open(io.BytesIO(content), formats=FORMATS) as opened:
                if opened.width * opened.height > MOST_PIXELS:
                    raise InputError(
                        f"{argument}: {path} has {opened.width} x {opened.height} pixels, but at most {MOST_PIXELS} "
                        "pixels are allowed. Split or shrink it."
                    )
                return np.asarray(convert(opened))
    except InputError:
        raise
    except Exception as error:  # decoders raise errors of many kinds for damaged files
        unknown = isinstance(error, image.UnidentifiedImageError)
        why = f"it is none of {', '.join(FORMATS)}" if unknown else str(error) or type(error).__name__
        raise InputError(f"{argument}: {path} cannot be read as an image ({why}). Remove or replace it.") from error


@contextlib.contextmanager
def within_memory(path: Path) -> Iterator[None]:
    """Raise an error that names the image if the block needs more memory than there is."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate" not in str(error):
            raise
        raise InputError(
            f"images: {path} is too large for the memory. Use tiles, a smaller `size` in the settings, or a smaller "
            "image."
        ) from error


def read_image(path: Path, channels: int = 3, content: bytes | None = None) -> NDArray[np.uint8]:
    """Return an image as (height, width, channels) bytes, rotated as its EXIF data say; `content` saves reading it."""

    def convert(opened: Any) -> Any:
        from PIL import ImageOps

        return ImageOps.exif_transpose(opened).convert("L" if channels == 1 else "RGB")

    pixels = decode(read_file(path) if content is None else content, path, convert)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def network_input(pixels: NDArray[np.uint8], settings: MapSettings) -> Tensor:
    """Return an image as network input, (channels, height, width), in the size of the settings."""
    x = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float().div_(255)
    if settings.size is not None and x.shape[1:] != settings.size:
        x = F.interpolate(x[None], settings.size, mode="bilinear", antialias=True, align_corners=False)[0]
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (settings.mean, settings.std))
    return (x - mean) / std


def filled_up(x: Tensor, multiple: int) -> Tensor:
    """Return images (batch, channels, height, width), padded at the right and below with their mirror image."""
    below, right = (-x.shape[2] % multiple, -x.shape[3] % multiple)
    return F.pad(x, (0, right, 0, below), mode="reflect" if max(below, right) < min(x.shape[2:]) else "replicate")


class ImageFiles(Dataset[Tensor]):
    """Image files as a data set; every file is read when it is needed.

    Args:
        paths: The files.
        settings: How images become network input. Without `size`, all images must have the same size.
    """

    def __init__(self, paths: Sequence[Path], settings: MapSettings) -> None:
        self.paths, self.settings = list(paths), settings

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        with within_memory(self.paths[row]):
            x = network_input(read_image(self.paths[row], len(self.settings.mean)), self.settings)
            return filled_up(x[None], self.settings.multiple)[0]


def read_labels(path: Path, content: bytes | None = None) -> NDArray[np.int64]:
    """Return class numbers, (height, width), from a greyscale, 16-bit or palette image."""

    def convert(opened: Any) -> Any:
        if opened.mode not in ("L", "P", "I", "I;16", "1"):
            raise InputError(
                f"truth: {path} is a colour image ({opened.mode}). Pass an image whose pixels are class numbers."
            )
        return opened

    return decode(read_file(path, "truth") if content is None else content, path, convert, "truth").astype(np.int64)


def label_png(labels: NDArray[np.int64], colours: Sequence[tuple[int, int, int]]) -> bytes:
    """Return class numbers as a PNG: with a palette of colours, or with 16 bits for more than 256 classes."""
    if len(colours) > 256:
        return png(pillow().fromarray(labels.astype(np.uint16)))
    picture = pillow().fromarray(labels.astype(np.uint8), mode="P")
    picture.putpalette([value for colour in colours for value in colour])
    return png(picture)


def png(picture: Any) -> bytes:
    """Return an image as the bytes of a PNG file."""
    target = io.BytesIO()
    picture.save(target, format="PNG")
    return target.getvalue()


def in_size(values: Tensor, size: tuple[int, int], smooth: bool) -> Tensor:
    """Return a map (height, width) in another size, by linear interpolation if `smooth`, else by nearest pixel."""
    if values.shape == size:
        return values
    options: dict[str, Any] = {"mode": "bilinear", "align_corners": False} if smooth else {"mode": "nearest-exact"}
    return F.interpolate(values[None, None].float(), size, **options)[0, 0].to(values.dtype)


# The number of levels of entropy, from 0 to its maximum, by which pixels are counted.
LEVELS = 256

_COUNTS = listed(whole(), LEVELS, LEVELS)
_NUMBERS = record(
    digest=text,
    mean_entropy=number(0, 1),
    mean_mutual_information=number(),
    classes=whole(2, 65535),
    counts=_COUNTS,
    right=optional(_COUNTS),
    known=optional(_COUNTS),
)


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
        labelled: The number of pixels with a true class at each level; None without true classes.
    """

    path: Path
    labels: Path
    entropy: Path
    mean_entropy: float
    mean_mutual_information: float
    classes: int
    counts: NDArray[np.int64]
    right: NDArray[np.int64] | None = None
    labelled: NDArray[np.int64] | None = None

    @classmethod
    def from_numbers(cls, path: Path, labels: Path, entropy: Path, numbers: dict[str, Any]) -> ImageMaps:
        """Return the maps of an image from its files and its numbers, which are JSON values."""
        arrays = {name: np.array(value, np.int64) for name, value in numbers.items() if isinstance(value, list)}
        values = {**numbers, **arrays}
        return cls(path, labels, entropy, labelled=values.pop("known"), **values)

    @property
    def accuracy(self) -> float | None:
        """The share of correctly predicted pixels; None without true classes."""
        right, labelled = self.right, self.labelled
        return None if right is None or labelled is None else float(right.sum() / max(1, labelled.sum()))


def digest_of_files(paths: Sequence[Path], folder: Path) -> str:
    """Return the SHA-256 of files, their names relative to a folder, and their order."""
    parts = [[str(path.relative_to(folder)), hashlib.sha256(read_file(path)).hexdigest()] for path in paths]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def digest_of_posterior(posterior: Posterior) -> str:
    """Return the SHA-256 of a posterior and of the weights of its network."""
    config = [posterior.kind, posterior.config(), posterior.likelihood.config(), digest_of_weights(posterior.model)]
    tensors = {name: value.detach().cpu() for name, value in posterior.tensors().items()}
    return content_digest(tensors, json.dumps(config, sort_keys=True))


def digest_of_weights(network: nn.Module) -> str:
    """Return the SHA-256 of the parameters and buffers of a network."""
    state = {name: value for name, value in network.state_dict().items() if isinstance(value, Tensor)}
    return content_digest({name: value.detach().cpu() for name, value in state.items()}, "")


def store_numbers(values: dict[str, Any], labels: bytes, entropy: bytes, inputs: str, numbers: Path) -> None:
    """Write the file that marks an image as done, after its maps.

    Args:
        values: The numbers of the maps, as JSON values.
        labels, entropy: The content of the two PNG files.
        inputs: The digest of everything that the maps were made from.
        numbers: The file to write.
    """
    stored = {**values, "digest": _digest(inputs, values, labels, entropy)}
    write_bytes(numbers, json.dumps(stored).encode())


def stored_numbers(labels: Path, entropy: Path, inputs: str, numbers: Path) -> dict[str, Any] | None:
    """Return the numbers of an earlier run; None if maps are missing, damaged or made from something else.

    Args:
        labels, entropy: The files of the maps.
        inputs: The digest of everything that the maps are made from now.
        numbers: The file that marks the image as done.
    """
    try:
        values: dict[str, Any] = read_json_file(numbers)
        _NUMBERS(values, numbers.name)
        digest = values.pop("digest")
        same = digest == _digest(inputs, values, labels.read_bytes(), entropy.read_bytes())
    except (OSError, ValueError, MemoryError, BayesNormError):
        return None
    return values if same else None


def _digest(inputs: str, values: dict[str, Any], labels: bytes, entropy: bytes) -> str:
    digest = hashlib.sha256(json.dumps([inputs, values], sort_keys=True).encode())
    for content in (labels, entropy):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
