"""SegNet (Badrinarayanan, Kendall and Cipolla 2017), and with dropout Bayesian SegNet (Kendall et al. 2015)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional as F

from bayesnorm.arguments import as_whole, require_whole
from bayesnorm.errors import BayesNormError

from .convolution import convolution, dropout_layer, initialise, require_rate
from .vgg import VGG_STAGES

# Number of stages with dropout in encoder and decoder, counted from the deepest.
CENTRAL_STAGES = 3


class SegNet(nn.Module):
    """SegNet: images (batch, in_channels, H, W) -> logits (batch, classes, H, W); H and W need not be even.

    The encoder is that of VGG: conv3x3 without bias -> BN -> ReLU, with maximum pooling after every stage. The decoder
    has the same stages in reverse order. It puts every value where the pooling found its maximum, with zeros elsewhere,
    and then applies the convolutions of the stage. The last convolution, with bias, gives the logits. Parameters are
    called `encoder.{stage}.{i}`, `decoder.{stage}.{i}`, from the deepest stage, and `head`.

    Args:
        classes: Number of outputs per pixel.
        seed: Seed of the weights (He initialisation, bias 0); the global generator is not used.
        in_channels: Channels of the images.
        width: Channels of the first stage; each further stage has twice as many, at most eight times.
        stages: Convolutions in each stage of the encoder; the original has those of VGG-16.
        dropout: Dropout rate after the three deepest stages of encoder and decoder; Bayesian SegNet uses 0.5.
    """

    def __init__(
        self,
        classes: int = 11,
        seed: int = 0,
        *,
        in_channels: int = 3,
        width: int = 64,
        stages: Sequence[int] = VGG_STAGES[16],
        dropout: float = 0.0,
    ) -> None:
        classes, planes = require_whole("classes", classes), require_whole("in_channels", in_channels)
        width, dropout = require_whole("width", width), require_rate(dropout)
        depths = [depth for depth in map(as_whole, stages) if depth is not None and depth >= 1]
        if not depths or len(depths) < len(stages):
            raise BayesNormError(
                f"stages must be a sequence of whole numbers from 1, such as (2, 2, 3), got {stages!r}."
            )
        super().__init__()
        widths = [width * min(2**i, 8) for i in range(len(depths))]
        rates = [dropout if len(depths) - i <= CENTRAL_STAGES else 0.0 for i in range(len(depths))]
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        for depth, out in zip(depths, widths, strict=True):
            self.encoder.append(_stage([planes, *[out] * depth]))
            planes = out
        for i in reversed(range(1, len(depths))):
            self.decoder.append(_stage([*[widths[i]] * depths[i], widths[i - 1]]))
        self.decoder.append(_stage([width] * depths[0]))
        self.encoder_dropout = nn.ModuleList(map(dropout_layer, rates))
        self.decoder_dropout = nn.ModuleList(map(dropout_layer, reversed(rates)))
        self.head = convolution(width, classes, bias=True)
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        places = []
        for stage, dropout in zip(self.encoder, self.encoder_dropout, strict=True):
            x = stage(x)
            size = x.shape[-2:]
            x, where = F.max_pool2d(x, 2, ceil_mode=True, return_indices=True)
            places.append((where, size))
            x = dropout(x)
        for stage, dropout in zip(self.decoder, self.decoder_dropout, strict=True):
            where, size = places.pop()
            x = dropout(stage(F.max_unpool2d(x, where, (2, 2), output_size=list(size))))
        logits: Tensor = self.head(x)
        return logits


def _stage(planes: Sequence[int]) -> nn.Sequential:
    """Return convolutions from each number of channels to the next."""
    layers: list[nn.Module] = []
    for inputs, out in pairwise(planes):
        layers += [convolution(inputs, out), nn.BatchNorm2d(out, device="cpu"), nn.ReLU()]
    return nn.Sequential(*layers)
