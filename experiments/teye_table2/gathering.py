"""Outputs of networks for many images, gathered part by part: what is there is not computed again.

Every part is a file that is written whole or not at all, so that an interrupted run goes on where it was. Its name says
what it is made of: the network, the posterior, the images, how it was asked.
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
"""Images of a part: some seconds to half a minute of one core under 128 samples."""

NOT_DRAWN = ("components", "sensitivities", "training_batches")
"""Parts of a posterior that no draw depends on; some are there only once they were looked for."""


@dataclass(frozen=True)
class Gathering:
    """Where outputs are kept.

    Args:
        folder: The folder; made if it is not there.
        progress: Called with a line about what is being computed.
    """

    folder: Path
    progress: Callable[[str], None] = lambda line: None

    def outputs(
        self, posterior: Posterior, images: Tensor, how: str, ask: Callable[[Tensor], Tensor], name: str = ""
    ) -> Tensor:
        """Return outputs (samples, images, *out) on the CPU.

        Args:
            posterior: What is asked; its network and its tensors belong to a part's name.
            images: The images, on the network's device.
            how: How it is asked, in words that no other way has: engine, samples, seed.
            ask: Gives the outputs (samples, batch, *out) of some images.
            name: What progress calls it.
        """
        parts = []
        for start in range(0, len(images), PART):
            part = images[start : start + PART]
            line = f"{name}: images {start} to {start + len(part) - 1} of {len(images)}"
            parts.append(self.kept(posterior, part, how, partial(ask, part), line))
        return torch.cat(parts, 1)

    def kept(self, posterior: Posterior, images: Tensor, how: str, compute: Callable[[], Tensor], line: str) -> Tensor:
        """Return what is kept of a posterior and some images, or compute it now; `line` then goes to progress."""
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
    """Return those parts of a posterior that samples depend on, under names that begin with `prefix`."""
    return {f"{prefix}{name}": part for name, part in parts.items() if name.partition(".")[0] not in NOT_DRAWN}
