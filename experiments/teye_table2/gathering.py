"""Compute outputs of networks for many images part by part; existing parts are not computed again.

Every part is a file that is written atomically, so an interrupted run continues. Its name identifies the network, the
posterior, the images and the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesnorm.files import read, write
from bayesnorm.network import tensors_of
from bayesnorm.posterior import Posterior

FILE_FORMAT = "bayesnorm-outputs"
PART = 100
"""Images of a part: with 128 samples, half a minute at most on one core."""

NOT_DRAWN = ("components", "sensitivities", "training_batches")
"""Parts of a posterior that no sample depends on; some are only computed on demand."""


@dataclass(frozen=True)
class Gathering:
    """Where outputs are stored.

    Args:
        folder: The folder; created if needed.
        progress: Called with a line about the current work.
    """

    folder: Path
    progress: Callable[[str], None] = lambda line: None

    def outputs(
        self, posterior: Posterior, images: Tensor, how: str, ask: Callable[[Tensor], Tensor], name: str = ""
    ) -> Tensor:
        """Return outputs (samples, images, *out) on the CPU.

        Args:
            posterior: The posterior; its network and its tensors determine a part's name.
            images: The images, on the network's device.
            how: A unique description of the computation: engine, samples, seed.
            ask: Returns the outputs (samples, batch, *out) of some images.
            name: The name in progress messages.
        """
        parts = []
        for start in range(0, len(images), PART):
            part = images[start : start + PART]
            line = f"{name}: images {start} to {start + len(part) - 1} of {len(images)}"
            parts.append(self.cached(posterior, part, how, partial(ask, part), line))
        return torch.cat(parts, 1)

    def cached(
        self, posterior: Posterior, images: Tensor, how: str, compute: Callable[[], Tensor], line: str
    ) -> Tensor:
        """Return the stored result of a posterior and some images, or compute it now; `line` then goes to progress."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made_of = fingerprint(tensors_of(posterior.model) | _drawn(posterior.tensors(), " "))
        settings = f"{how} {posterior.likelihood} {sorted(_drawn(posterior.config()).items())}"
        name = hashlib.sha256(f"{made_of} {settings} {fingerprint({'images': images})}".encode()).hexdigest()
        path = self.folder / f"{name[:32]}.outputs"
        if not path.exists():
            self.progress(line)
            with torch.no_grad():
                write(path, {"outputs": compute()}, {"how": how}, FILE_FORMAT)
        return read(path, FILE_FORMAT, again="delete it")[0]["outputs"]


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of tensors and their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _drawn(parts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return those parts of a posterior that samples depend on, with names that begin with `prefix`."""
    return {f"{prefix}{name}": part for name, part in parts.items() if name.partition(".")[0] not in NOT_DRAWN}
