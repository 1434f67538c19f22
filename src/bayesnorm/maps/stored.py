"""Store the maps of images under a digest of everything they were made from, and read them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import BayesNormError
from ..files import content_digest, parse_json
from ..posterior import Posterior
from ..schema import listed, number, optional, record, text, whole
from ..writing import write_bytes
from .images import read_file

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
        values: dict[str, Any] = parse_json(numbers.read_bytes())
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
