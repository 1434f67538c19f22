"""ResNet-18, 34 and 50 for 32x32 images: ImageNet's networks with a 3x3 stem and no pooling before the first stage."""

from __future__ import annotations

from bayesnorm.arguments import as_whole
from bayesnorm.errors import BayesNormError

from .residual import ResidualNetwork

# Blocks of the four stages, by depth; from depth 50 they are bottlenecks.
RESNET_BLOCKS: dict[int, tuple[int, int, int, int]] = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}


class ResNet(ResidualNetwork):
    """ResNet of He et al. 2016 for small images: (batch, in_channels, H, W) -> logits (batch, classes).

    Parameters are called `conv1`, `bn1`, `layer{1,2,3,4}.{i}.{conv1,bn1,...,shortcut}` and `linear`. A shortcut that
    changes the shape is a 1x1 convolution.

    Args:
        depth: Number of layers with weights, without shortcuts: 18, 34 or 50.
        classes: Number of outputs.
        seed: Seed of the weights (He initialisation, linear bias 0); the global generator is not used.
        in_channels: Channels of the images.
        width: Channels of the first stage; each further stage has twice as many.
        preactivation, dropout, leak: See `CifarResNet`.
    """

    def __init__(
        self,
        depth: int = 18,
        classes: int = 10,
        seed: int = 0,
        *,
        in_channels: int = 3,
        width: int = 64,
        preactivation: bool = False,
        dropout: float = 0.0,
        leak: float = 0.0,
    ) -> None:
        result = as_whole(depth)
        if result not in RESNET_BLOCKS:
            raise BayesNormError(f"depth must be one of {', '.join(map(str, RESNET_BLOCKS))}, got {depth!r}.")
        super().__init__(
            RESNET_BLOCKS[result],
            classes,
            seed,
            in_channels=in_channels,
            width=width,
            preactivation=preactivation,
            dropout=dropout,
            leak=leak,
            bottleneck=result >= 50,
            projection=True,
        )
