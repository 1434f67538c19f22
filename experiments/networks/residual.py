"""Parts of the ResNets (He et al. 2016): stages of convolutional blocks with shortcuts."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from bayesnorm.arguments import require_number, require_whole

from .convolution import activated, convolution, dropout_layer, initialise, linear, require_rate


class ResidualBlock(nn.Module):
    """conv -> BN -> ReLU -> ... -> conv -> BN, plus the shortcut, then ReLU; layers are `conv1`, `bn1`, `conv2`, ...

    With pre-activation (He et al. 2016b) it is BN -> ReLU -> conv -> ..., plus the shortcut, and nothing afterwards. A
    shortcut that changes the shape then starts after the first ReLU.

    Args:
        in_planes: Channels of the input.
        planes: Channels of the convolutions, and of the output; the output of a bottleneck has four times as many.
        stride: 2 halves height and width.
        bottleneck: 1x1, 3x3, 1x1 convolutions (the second has the stride) instead of two of 3x3 (the first has it).
        projection: If the shape changes, the shortcut is a 1x1 convolution, with BN unless pre-activated. Otherwise it
            has no parameters (option A): every second pixel, and as many zero channels on both sides.
        preactivation: Whether BN and ReLU precede their convolution.
        dropout: Dropout rate before the last convolution.
        leak: Slope of the activation below 0.
    """

    def __init__(
        self,
        in_planes: int,
        planes: int,
        stride: int,
        *,
        bottleneck: bool = False,
        projection: bool = False,
        preactivation: bool = False,
        dropout: float = 0.0,
        leak: float = 0.0,
    ) -> None:
        super().__init__()
        out_planes = 4 * planes if bottleneck else planes
        self.stride, self.preactivation, self.leak = stride, preactivation, leak
        self.pad = (out_planes - in_planes) // 2
        self.changes = stride != 1 or out_planes != in_planes
        basic, narrow = [(3, planes, stride), (3, planes, 1)], [(1, planes, 1), (3, planes, stride), (1, out_planes, 1)]
        layers = narrow if bottleneck else basic
        self.depth, width = len(layers), in_planes
        for i, (kernel, out, step) in enumerate(layers, 1):
            setattr(self, f"conv{i}", convolution(width, out, kernel, step))
            setattr(self, f"bn{i}", nn.BatchNorm2d(width if preactivation else out, device="cpu"))
            width = out
        self.dropout = dropout_layer(dropout)
        self.shortcut = nn.Sequential()
        if projection and self.changes:
            self.shortcut.append(convolution(in_planes, out_planes, 1, stride))
            if not preactivation:
                self.shortcut.append(nn.BatchNorm2d(out_planes, device="cpu"))

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for i in range(1, self.depth + 1):
            conv, bn = getattr(self, f"conv{i}"), getattr(self, f"bn{i}")
            if self.preactivation:
                out = activated(bn(out), self.leak)
                if i == 1 and self.changes:
                    x = out
            if i == self.depth:
                out = self.dropout(out)
            out = conv(out)
            if not self.preactivation:
                out = bn(out)
                if i < self.depth:
                    out = activated(out, self.leak)
        out = out + self._shortcut(x)
        return out if self.preactivation else activated(out, self.leak)

    def _shortcut(self, x: Tensor) -> Tensor:
        """Return the input in the output's shape."""
        if self.changes and not len(self.shortcut):
            return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.pad, self.pad))
        shorter: Tensor = self.shortcut(x)
        return shorter


class ResidualNetwork(nn.Module):
    """A stem, stages of residual blocks, a global average pool and a linear layer.

    Args:
        blocks: Number of blocks in each stage; each stage but the first halves the size and doubles the channels.
        classes, seed, in_channels, width, preactivation, dropout, leak: See `CifarResNet`.
        bottleneck, projection: See `ResidualBlock`.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        classes: int,
        seed: int,
        *,
        in_channels: int,
        width: int,
        preactivation: bool,
        dropout: float,
        leak: float,
        bottleneck: bool = False,
        projection: bool = False,
    ) -> None:
        planes = width = require_whole("width", width)
        classes, in_channels = require_whole("classes", classes), require_whole("in_channels", in_channels)
        dropout, leak = require_rate(dropout), require_number("leak", leak, least=0)
        super().__init__()
        self.stages, self.preactivation, self.leak = len(blocks), preactivation, leak
        out_planes = width * 2 ** (len(blocks) - 1) * (4 if bottleneck else 1)
        self.conv1 = convolution(in_channels, width)
        self.bn1 = nn.BatchNorm2d(out_planes if preactivation else width, device="cpu")
        for i, count in enumerate(blocks):
            stage = nn.Sequential()
            for j in range(count):
                stride = 2 if i > 0 and j == 0 else 1
                block = ResidualBlock(
                    planes,
                    width * 2**i,
                    stride,
                    bottleneck=bottleneck,
                    projection=projection,
                    preactivation=preactivation,
                    dropout=dropout,
                    leak=leak,
                )
                stage.append(block)
                planes = width * 2**i * (4 if bottleneck else 1)
            setattr(self, f"layer{i + 1}", stage)
        self.linear = linear(out_planes, classes)
        initialise(self, seed, leak)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)
        if not self.preactivation:
            x = activated(self.bn1(x), self.leak)
        for i in range(1, self.stages + 1):
            x = getattr(self, f"layer{i}")(x)
        if self.preactivation:
            x = activated(self.bn1(x), self.leak)
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits
