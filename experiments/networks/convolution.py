"""Parts of the image networks: convolutions, activations, dropout and He initialisation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesnorm.arguments import require_number, require_seed


def convolution(
    in_planes: int,
    planes: int,
    kernel: int = 3,
    stride: int = 1,
    padding: int | None = None,
    *,
    groups: int = 1,
    bias: bool = False,
) -> nn.Conv2d:
    """Return a convolution whose weights are not set yet; with stride 1 it preserves the image size."""
    # skip_init: the constructor's own initialisation would use the global generator.
    made: nn.Conv2d = nn.utils.skip_init(
        nn.Conv2d,
        in_planes,
        planes,
        kernel_size=kernel,
        stride=stride,
        padding=kernel // 2 if padding is None else padding,
        groups=groups,
        bias=bias,
        device="cpu",
    )
    return made


def linear(in_features: int, out_features: int, bias: bool = True) -> nn.Linear:
    """Return a linear layer whose weights are not set yet."""
    made: nn.Linear = nn.utils.skip_init(nn.Linear, in_features, out_features, bias=bias, device="cpu")
    return made


def initialise(network: nn.Module, seed: int, leak: float = 0.0) -> None:
    """Initialise all weights as in He et al. 2015, with biases of 0; the global generator is not used."""
    generator = torch.Generator(device="cpu").manual_seed(require_seed(seed))
    for _, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, a=leak, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def activated(x: Tensor, leak: float) -> Tensor:
    """Return ReLU of x, or leaky ReLU with the slope `leak` below 0."""
    return F.leaky_relu(x, leak) if leak else F.relu(x)


def dropout_layer(rate: float) -> nn.Module:
    """Return dropout with this rate, or an identity layer if it is 0."""
    return nn.Dropout(rate) if rate else nn.Identity()


def require_rate(rate: float) -> float:
    """Return a dropout rate as a float, or refuse it."""
    return require_number("dropout", rate, least=0, below=1, requirement="a probability from 0 to below 1")
