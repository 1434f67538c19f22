"""A trained network with what methods may take from clean data: a temperature, a posterior, labelled images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

from bayesnorm.files import read_tensors
from bayesnorm.posterior import BatchNormPosterior

from ...data import load_cifar10, to_network_input
from ...networks import CifarResNet, load_cifar_resnet
from ..networks import TARGETS, fit_network

PUBLISHED = {"ResNet-20": 20, "ResNet-32": 32}
"""The networks with published weights, and their depths."""


@dataclass(frozen=True, eq=False)
class Source:
    """A network in evaluation mode, and clean images that are in no stream.

    Args:
        network: The network.
        temperature: Its temperature, fitted on the clean images.
        posterior: MCBN, with the temperature of its own samples.
        clean: The first 1,000 test images, as network input.
        labels: Their labels.
    """

    network: nn.Module
    temperature: float
    posterior: BatchNormPosterior
    clean: Tensor
    labels: Tensor


@lru_cache(maxsize=2)
def load_source(name: str, folder: Path, device: str) -> Source:
    """Return a network by name: one of `PUBLISHED`, or NAME for the weights `folder/NAME.safetensors`.

    Args:
        name: "ResNet-20", or for example "resnet20_1" as `train-image` calls its files.
        folder: Folder of the weights, where fitted posteriors are kept as well.
        device: The device.
    """
    network = load_cifar_resnet(PUBLISHED[name]) if name in PUBLISHED else _trained(name, folder)
    state = fit_network(network.to(device), name, device, folder)
    images, labels = load_cifar10("test", TARGETS)
    return Source(
        state.network.eval(),
        float(state.likelihood.temperature),
        state.posterior,
        to_network_input(images).to(device),
        torch.as_tensor(labels).to(device),
    )


def _trained(name: str, folder: Path) -> CifarResNet:
    network = CifarResNet(int(name.removeprefix("resnet").partition("_")[0]))
    state = read_tensors(folder / f"{name}.safetensors")[0]
    counters = {key: value for key, value in network.state_dict().items() if key not in state}  # of batches, unused
    network.load_state_dict({key: value.float() for key, value in state.items()} | counters)
    return network.eval()
