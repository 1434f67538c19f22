"""LeNet-5 (LeCun et al. 1998) in its modern form: ReLU, maximum pooling and, by default, batch norm."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from bayesnorm.arguments import as_whole, require_whole
from bayesnorm.errors import BayesNormError

from .convolution import convolution, dropout_layer, initialise, linear, require_rate


class LeNet5(nn.Module):
    """LeNet-5: images (batch, in_channels, size, size) -> logits (batch, classes).

    Twice conv5x5 -> BN -> ReLU -> pooling, then linear -> BN -> ReLU for each further hidden layer, then linear. Layers
    are called `features.{i}` and `classifier.{i}`. Layers followed by batch norm have no bias.

    Args:
        classes: Number of outputs.
        seed: Seed of the weights (He initialisation, biases 0); the global generator is not used.
        in_channels: Channels of the images.
        size: Height and width of the images.
        widths: Channels of the two convolutions, then units of the hidden linear layers; (20, 50, 500) without padding
            is the variant of Caffe.
        padding: Zeros around the image, before the first convolution; 2 enlarges 28x28 to the original's input size.
        batchnorm: Whether the network has batch norm.
        dropout: Dropout rate before every linear layer.
    """

    def __init__(
        self,
        classes: int = 10,
        seed: int = 0,
        *,
        in_channels: int = 1,
        size: int = 28,
        widths: Sequence[int] = (6, 16, 120, 84),
        padding: int = 2,
        batchnorm: bool = True,
        dropout: float = 0.0,
    ) -> None:
        classes, planes = require_whole("classes", classes), require_whole("in_channels", in_channels)
        size = require_whole("size", size, 12) + 2 * require_whole("padding", padding, 0)
        numbers = [width for width in map(as_whole, widths) if width is not None and width >= 1]
        if len(numbers) < len(widths) or len(numbers) < 2:
            raise BayesNormError(f"widths must be a sequence of at least two whole numbers from 1, got {widths!r}.")
        dropout = require_rate(dropout)
        super().__init__()
        layers: list[nn.Module] = []
        for i, width in enumerate(numbers[:2]):
            made = convolution(planes, width, 5, padding=padding if i == 0 else 0)
            if not batchnorm:
                made.bias = nn.Parameter(made.weight.new_zeros(width))
            layers += [made, *([nn.BatchNorm2d(width, device="cpu")] if batchnorm else []), nn.ReLU(), nn.MaxPool2d(2)]
            planes, size = width, (size - 4) // 2
        self.features = nn.Sequential(*layers)
        head: list[nn.Module] = []
        features = planes * size**2
        for width in numbers[2:]:
            head += [dropout_layer(dropout), linear(features, width, bias=not batchnorm)]
            head += [nn.BatchNorm1d(width, device="cpu"), nn.ReLU()] if batchnorm else [nn.ReLU()]
            features = width
        self.classifier = nn.Sequential(*head, dropout_layer(dropout), linear(features, classes))
        initialise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits
