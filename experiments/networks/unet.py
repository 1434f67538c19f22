"""A small U-Net (Ronneberger et al. 2015) of depth-wise separable convolutions (Howard et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesnorm.arguments import require_whole

from .convolution import convolution, dropout_layer, initialise, require_rate


class UNet(nn.Module):
    """U-Net: images (batch, in_channels, H, W) -> outputs (batch, classes, H, W); H and W need not be even.

    A stage is two separable convolutions: depth-wise 3x3 -> BN -> 1x1 -> BN -> ReLU. On the way down, maximum pooling
    separates the stages. On the way up, the features from below are enlarged (bilinear) and concatenated with those of
    the same size from the way down. The first layer is a full convolution, the last one a 1x1 convolution with bias.
    Parameters are called `stem`, `down.{stage}`, `up.{stage}`, from the deepest stage, and `head`.

    Args:
        classes: Number of outputs per pixel.
        seed: Seed of the weights (He initialisation, bias 0); the global generator is not used.
        in_channels: Channels of the images.
        width: Channels of the first stage; each further stage has twice as many, at most sixteen times.
        depth: Number of poolings.
        dropout: Dropout rate after the deepest stage and the one before it, on the way down and up.
    """

    def __init__(
        self,
        classes: int = 11,
        seed: int = 0,
        *,
        in_channels: int = 3,
        width: int = 32,
        depth: int = 4,
        dropout: float = 0.0,
    ) -> None:
        classes, in_channels = require_whole("classes", classes), require_whole("in_channels", in_channels)
        width, depth, dropout = require_whole("width", width), require_whole("depth", depth), require_rate(dropout)
        super().__init__()
        widths = [width * min(2**i, 16) for i in range(depth + 1)]
        self.stem = nn.Sequential(convolution(in_channels, width), nn.BatchNorm2d(width, device="cpu"), nn.ReLU())
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for i, out in enumerate(widths):
            self.down.append(_stage(widths[max(0, i - 1)], out, dropout if i >= depth - 1 else 0.0))
        for i in reversed(range(depth)):
            self.up.append(_stage(widths[i + 1] + widths[i], widths[i], dropout if i == depth - 1 else 0.0))
        self.head = convolution(width, classes, 1, bias=True)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        x, beside = self.stem(x), []
        for i, stage in enumerate(self.down):
            x = stage(F.max_pool2d(x, 2, ceil_mode=True) if i else x)
            beside.append(x)
        beside.pop()
        for stage in self.up:
            other = beside.pop()
            larger = F.interpolate(x, size=other.shape[-2:], mode="bilinear", align_corners=False)
            x = stage(torch.cat([larger, other], 1))
        outputs: Tensor = self.head(x)
        return outputs


def _stage(planes: int, out: int, dropout: float) -> nn.Sequential:
    """Return two separable convolutions and dropout."""
    layers: list[nn.Module] = []
    for inputs in (planes, out):
        layers += [convolution(inputs, inputs, groups=inputs), nn.BatchNorm2d(inputs, device="cpu")]
        layers += [convolution(inputs, out, 1), nn.BatchNorm2d(out, device="cpu"), nn.ReLU()]
    return nn.Sequential(*layers, dropout_layer(dropout))
