"""The networks that the image experiments train, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from ..networks import VGG, CifarResNet, LeNet5, ResNet

# Each takes classes, seed, in_channels and dropout, and images of 32 x 32.
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "lenet5": partial(LeNet5, size=32, padding=0),  # digits are already padded
    "vgg11": partial(VGG, 11),
    "vgg16": partial(VGG, 16),
    "resnet18": partial(ResNet, 18),
    "resnet50": partial(ResNet, 50),
    "resnet20": partial(CifarResNet, 20),
    "resnet32": partial(CifarResNet, 32),
    "resnet44": partial(CifarResNet, 44),
    "resnet56": partial(CifarResNet, 56),
    "teye-resnet32": partial(CifarResNet, 32, preactivation=True, leak=0.1),  # of the MCBN paper's table 2
}
