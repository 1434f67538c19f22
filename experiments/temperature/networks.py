"""Trained image networks by name, and posteriors whose outputs are computed once for all images and then looked up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bayesnorm as bn
from bayesnorm.cli.usage import UsageError
from bayesnorm.files import read_tensors
from bayesnorm.nets import load_cifar_resnet
from bayesnorm.network import State
from bayesnorm.posterior import BatchNormPosterior, PointPosterior

from ..image_networks.networks import NETWORKS
from ..known_names import require_known

BATCH_SIZE = 32
"""M of all posteriors."""

GIVEN = {"resnet20": 20, "resnet32": 32}
"""Depths of the networks that a data folder has weights of."""

# Images of a pass: enough of them for any machine, with few draws at a time.
ROWS = 500


def trained_network(name: str, weights: Path | None) -> nn.Module:
    """Return a network in evaluation mode with the weights of a safetensors file, or of the data folder.

    Args:
        name: One of `NETWORKS`.
        weights: The file; None takes those that the data folder has for this network.
    """
    require_known("network", [name], NETWORKS)
    if weights is None:
        require_known("network, without --weights", [name], GIVEN)
        return load_cifar_resnet(GIVEN[name])
    network = NETWORKS[name]()
    state = {key.removeprefix("module."): tensor.float() for key, tensor in read_tensors(weights)[0].items()}
    try:
        network.load_state_dict(network.state_dict() | state)  # files need not say how many batches were tracked
    except RuntimeError as error:
        raise UsageError(f"--weights: {weights} does not hold the weights of {name}: {error}") from error
    return network.eval()


class Remembering:
    """Runs a network on all images once for each set of states; what is asked for afterwards are numbers of images.

    Args:
        executable: Runs the network.
        images: All images, as the network takes them.
    """

    def __init__(self, executable: Any, images: Tensor) -> None:
        self.executable, self.images = executable, images
        self.kept: dict[int, Tensor] = {}  # outputs of all images by what was drawn, (draws, images, *out)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.executable.device

    def input(self, rows: Any, name: str = "x") -> Any:
        """Return numbers of images as they are."""
        return rows

    def point(self, rows: Tensor) -> Tensor:
        """Return the outputs of the network as it is for these images."""
        if 0 not in self.kept:
            self.kept[0] = torch.cat([self.executable.point(part) for part in self.images.split(ROWS)])
        return self.kept[0][rows.to(self.device)]

    def run(self, states: State, rows: Tensor, **options: Any) -> Tensor:
        """Return the outputs under n states for these images."""
        key = hash(tuple(tensor.cpu().numpy().tobytes() for tensor in states.values()))
        if key not in self.kept:
            parts = [self.executable.run(states, part, **options) for part in self.images.split(ROWS)]
            self.kept[key] = torch.cat(parts, 1)
        return self.kept[key][:, rows.to(self.device)]


def remembered(posterior: BatchNormPosterior, images: Tensor) -> tuple[PointPosterior, BatchNormPosterior]:
    """Return the network without doubt, and the posterior, as they are asked about images by number."""
    executable: Any = Remembering(posterior.executable, images)
    return PointPosterior(executable, posterior.likelihood), dataclasses.replace(posterior, executable=executable)


def fitted(network: nn.Module, training: Tensor) -> BatchNormPosterior:
    """Return MCBN fitted on training images."""
    return bn.MCBN(BATCH_SIZE).fit(network, training, bn.Categorical())
