"""The published CIFAR-10 networks with their posteriors, and their images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import bayesnorm as bn
from bayesnorm.likelihoods import Categorical
from bayesnorm.posterior import BatchNormPosterior

from ..data import load_cifar10, to_network_input
from ..networks import CifarResNet, load_cifar_resnet
from .corruptions import Images, corrupt
from .presets import BATCH_SIZE

TARGETS = 1000
"""This many first test images may be used without labels; the others are scored."""

CLEAN = "clean"


@dataclass(frozen=True)
class Fitted:
    """A network, its temperature and its posterior.

    Args:
        network: The published ResNet.
        likelihood: With the temperature fitted on the clean first 1,000 test images.
        posterior: MCBN with the temperature fitted on the same images.
    """

    network: CifarResNet
    likelihood: Categorical
    posterior: BatchNormPosterior


@lru_cache(maxsize=4)
def fitted(depth: int, device: str, folder: Path) -> Fitted:
    """Return a published ResNet of depth 20 or 32 with its temperature and its posterior; see `fit_network`."""
    return fit_network(load_cifar_resnet(depth).to(device), f"resnet{depth}", device, folder)


def fit_network(network: CifarResNet, name: str, device: str, folder: Path) -> Fitted:
    """Return a network, its temperature, and MCBN fitted on the training images of the data folder.

    Args:
        network: The network, on the device.
        name: Name of its files in the folder.
        device: The device.
        folder: Folder for fitted posteriors, so that several processes can share a fit.
    """
    path = folder / f"{name}.bayesnorm"
    if not path.exists():
        images, labels = test_images()
        x, y = to_network_input(images[:TARGETS]).to(device), torch.as_tensor(labels[:TARGETS]).to(device)
        likelihood = bn.calibrate(bn.deterministic(network, Categorical()), x, y).likelihood
        training = to_network_input(load_cifar10("train", 5000)[0]).to(device)
        bn.deterministic(network, likelihood).save(folder / f"{name}_point.bayesnorm")
        plain = bn.MCBN(BATCH_SIZE).fit(network, training, likelihood)
        bn.calibrate(plain, x, y, batch_size=False).save(path)
    posterior = bn.load(path, network)
    likelihood = bn.load(folder / f"{name}_point.bayesnorm", network).likelihood
    assert isinstance(posterior, BatchNormPosterior)
    assert isinstance(likelihood, Categorical)
    return Fitted(network, likelihood, posterior)


@lru_cache(maxsize=1)
def test_images() -> tuple[Images, NDArray[np.int64]]:
    """Return the test images of the data folder and their labels."""
    return load_cifar10("test", 2000)


def network_input(corruption: str, severity: int, device: str) -> Tensor:
    """Return the test images after a corruption, or unchanged, as network input."""
    images, _ = test_images()
    if corruption != CLEAN:
        images = corrupt(images, corruption, severity)
    return to_network_input(images).to(device)
