"""Predictions of other libraries, which run in separate environments and write files.

`make bench-peers ARGS="--only laplace --predictions FOLDER"` writes them, and `teye-table2 --peers FOLDER` scores them
on its own images, if they are of the same network.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesnorm.files import read, write
from bayesnorm.network import tensors_of

from .gathering import fingerprint
from .methods import Predicted

FILE_FORMAT = "bayesnorm-predictions"
SUFFIX = ".predictions"


def write_predictions(folder: Path, network: nn.Module, images: Tensor, probs: Tensor, told: dict[str, Any]) -> None:
    """Write class probabilities of test images, one file per method.

    Args:
        folder: The folder; created if needed.
        network: The network that the method used.
        images: Indices of the test images, (images,).
        probs: Their class probabilities, (images, classes).
        told: "method", its name; "passes", the cost of a prediction; "versions", releases by library.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "_", told["method"].lower()).strip("_")
    content = {"images": images.long(), "probs": probs}
    write(folder / f"{name}{SUFFIX}", content, {**told, "network": fingerprint(tensors_of(network))}, FILE_FORMAT)


def read_predictions(folder: Path, network: nn.Module, images: int) -> tuple[list[Predicted], list[str]]:
    """Return other libraries' predictions for the first test images, and messages about files that were left out.

    Args:
        folder: The folder of `write_predictions`.
        network: Files of other networks are left out.
        images: Files that lack some of this many first test images are left out.
    """
    result, left_out = [], []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        tensors, told = read(path, FILE_FORMAT, argument="--peers", again="write it again")
        places = torch.full((int(tensors["images"].max()) + 1,), -1)
        places[tensors["images"]] = torch.arange(len(tensors["images"]))
        if told["network"] != fingerprint(tensors_of(network)):
            left_out.append(f"{told['method']}: its predictions are of another network")
        elif len(places) < images or bool((places[:images] < 0).any()):
            left_out.append(f"{told['method']}: it has not predicted all of the first {images} test images")
        else:
            log_probs = tensors["probs"][places[:images]].clamp_min(torch.finfo(torch.float32).tiny).log()
            result.append(Predicted(_with_version(**told), log_probs[None], told["passes"], whole=True))
    return result, left_out


def _with_version(method: str, versions: dict[str, str], **_: Any) -> str:
    """Return the name of a method, with the version of the library that its name begins with."""
    library = max((name for name in versions if method.startswith(name)), key=len, default="")
    return method.replace(library, f"{library} {versions[library]}", 1) if library else method
