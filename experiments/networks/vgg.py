"""VGG-11 and 16 with batch norm for 32x32 images (Simonyan and Zisserman 2015)."""

from __future__ import annotations

from torch import Tensor, nn

from bayesnorm.arguments import as_whole, require_whole
from bayesnorm.errors import BayesNormError

from .convolution import convolution, dropout_layer, initialise, linear, require_rate

# Convolutions of each of the five stages, by depth; of the original's linear layers only the last is kept.
VGG_STAGES: dict[int, tuple[int, ...]] = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3)}


class VGG(nn.Module):
    """VGG for small images: (batch, in_channels, H, W) -> logits (batch, classes); H and W from 32.

    conv3x3 without bias -> BN -> ReLU, pooling after each of five stages, then one linear layer. Parameters are called
    `features.{i}` and `linear`.

    Args:
        depth: Number of layers with weights in the original, which has three linear layers: 11, 13 or 16.
        classes: Number of outputs.
        seed: Seed of the weights (He initialisation, linear bias 0); the global generator is not used.
        in_channels: Channels of the images.
        width: Channels of the first stage; the next three have twice, four times and eight times as many.
        dropout: Dropout rate after every pooling.
    """

    def __init__(
        self,
        depth: int = 16,
        classes: int = 10,
        seed: int = 0,
        *,
        in_channels: int = 3,
        width: int = 64,
        dropout: float = 0.0,
    ) -> None:
        result = as_whole(depth)
        if result not in VGG_STAGES:
            raise BayesNormError(f"depth must be one of {', '.join(map(str, VGG_STAGES))}, got {depth!r}.")
        planes, width = require_whole("in_channels", in_channels), require_whole("width", width)
        dropout = require_rate(dropout)
        super().__init__()
        layers: list[nn.Module] = []
        for i, convolutions in enumerate(VGG_STAGES[result]):
            for _ in range(convolutions):
                out = width * min(2**i, 8)
                layers += [convolution(planes, out), nn.BatchNorm2d(out, device="cpu"), nn.ReLU()]
                planes = out
            layers += [nn.MaxPool2d(2), dropout_layer(dropout)]
        self.features = nn.Sequential(*layers)
        self.linear = linear(planes, require_whole("classes", classes))
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.linear(self.features(x).mean(dim=(2, 3)))
        return logits
