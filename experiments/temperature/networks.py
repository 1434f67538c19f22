"""Trained image networks by name, and posteriors whose outputs are computed once for all images and then looked up."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.cli.ending import UsageError
from bayesnorm.files import read_tensors
from bayesnorm.network import State
from bayesnorm.posterior import BatchNormPosterior, DeterministicPosterior
from bayesnorm.writing import write_bytes

from ..image_networks.networks import NETWORKS
from ..known_names import require_known
from ..networks import load_cifar_resnet

BATCH_SIZE = 32
"""M of all posteriors."""

GIVEN = {"resnet20": 20, "resnet32": 32}
"""Depths of the networks with weights in a data folder."""

# Images per forward pass: enough for any machine, with few samples at a time.
ROWS = 500


def trained_network(name: str, weights: Path | None) -> nn.Module:
    """Return a network in evaluation mode with the weights of a safetensors file, or of the data folder.

    Args:
        name: One of `NETWORKS`.
        weights: The file; None takes the weights in the data folder for this network.
    """
    require_known("network", [name], NETWORKS)
    if weights is None:
        require_known("network (without --weights)", [name], GIVEN)
        return load_cifar_resnet(GIVEN[name])
    network = NETWORKS[name]()
    state = {key.removeprefix("module."): tensor.float() for key, tensor in read_tensors(weights)[0].items()}
    try:
        network.load_state_dict(network.state_dict() | state)  # files may lack the number of tracked batches
    except RuntimeError as error:
        raise UsageError(f"--weights: {weights} does not contain the weights of {name}: {error}") from error
    return network.eval()


class Remembering:
    """Runs a network on all images once for each set of states; afterwards images are given by index.

    Args:
        executable: Runs the network.
        images: All images as network input.
        folder: Folder that stores outputs for the next time; None stores nothing.
    """

    def __init__(self, executable: Any, images: Tensor, folder: Path | None = None) -> None:
        self.executable, self.images, self.folder = executable, images, folder
        self.remembered: dict[str, Tensor] = {}  # outputs of all images by sampled states, (samples, images, *out)
        self.key = "" if folder is None else digest({**executable.model.state_dict(), "images": images})

    @property
    def device(self) -> torch.device:
        """Return the device of the network."""
        return self.images.device

    def __getattr__(self, name: str) -> Any:
        """Return what does not depend on inputs, such as the dtype."""
        return getattr(self.executable, name)

    def input(self, rows: Any, name: str = "x") -> Any:
        """Return indices of images unchanged."""
        return rows

    def labelled(self, rows: Any, y: Any, name: str = "x") -> tuple[Any, Any]:
        """Return indices of images and their targets unchanged."""
        return rows, y

    def point(self, rows: Tensor) -> Tensor:
        """Return the outputs of the deterministic network for these images."""
        return self._remembered("point", lambda x: self.executable.point(x)[None])[0, rows.to(self.device)]

    def run(self, states: State | None, rows: Tensor, progress: Any = None, **options: Any) -> Tensor:
        """Return the outputs under n states for these images; `progress` is not called."""
        outputs = self._remembered(digest(states or {}), lambda x: self.executable.run(states, x, **options))
        return outputs[:, rows.to(self.device)]

    def _remembered(self, key: str, run: Callable[[Tensor], Tensor]) -> Tensor:
        """Return outputs of all images, (samples, images, *out)."""
        path = None if self.folder is None else self.folder / f"{self.key}_{key}.safetensors"
        if key not in self.remembered and path is not None and path.exists():
            self.remembered[key] = read_tensors(path)[0]["outputs"].to(self.device)
        if key not in self.remembered:
            self.remembered[key] = torch.cat([run(part) for part in self.images.split(ROWS)], 1)
            if path is not None:
                write_bytes(path, to_bytes({"outputs": self.remembered[key].contiguous().cpu()}))
        return self.remembered[key]


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a short hash of these tensors."""
    result = hashlib.sha256()
    for name, tensor in tensors.items():
        result.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    return result.hexdigest()[:16]


def remembered(
    posterior: BatchNormPosterior, images: Tensor, folder: Path | None = None
) -> tuple[DeterministicPosterior, BatchNormPosterior]:
    """Return the deterministic network and the posterior, both for images given by index."""
    executable: Any = Remembering(posterior.executable, images, folder)
    return DeterministicPosterior(executable, posterior.likelihood), dataclasses.replace(
        posterior, executable=executable
    )


def fitted(network: nn.Module, training: Tensor, folder: Path | None = None) -> BatchNormPosterior:
    """Return MCBN fitted on training images, now or before."""
    path = None if folder is None else folder / f"{digest(network.state_dict())}.bayesnorm"
    if path is not None and path.exists():
        posterior = bn.load(path, network)
        assert isinstance(posterior, BatchNormPosterior)
        return posterior
    posterior = bn.MCBN(BATCH_SIZE).fit(network, training, bn.Categorical())
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        posterior.save(path)
    return posterior
