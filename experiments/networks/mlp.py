"""The networks of the MCBN paper's regression benchmark."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from bayesnorm.arguments import as_whole, require_number, require_seed
from bayesnorm.errors import BayesNormError

# Standard deviation of the normal distribution of weights, before it is truncated at two standard deviations.
WEIGHT_STD = 0.1


def paper_mlp(
    in_features: int,
    out_features: int = 1,
    hidden: Sequence[int] = (50, 50),
    eps: float = 1e-10,
    seed: int = 0,
) -> nn.Sequential:
    """Return the perceptron of Teye et al. 2018: linear without bias -> BN -> ReLU for each hidden layer, then linear.

    Weights are normal with standard deviation 0.1, truncated at 0.2; gamma is 1, beta and the output bias are 0. The
    network is in training mode, on the CPU, in torch's default dtype.

    Args:
        in_features: Columns of the input (batch, in_features).
        out_features: Columns of the output (batch, out_features).
        hidden: Units of each hidden layer; the paper has (50, 50), and (100, 100) for protein.
        eps: Epsilon of the BN layers.
        seed: Seed of the weights; the global generator is not used.
    """
    widths = _widths(in_features, hidden, out_features)
    eps = require_number("eps", eps, least=0, requirement="a number from 0, such as 1e-10")
    generator = torch.Generator(device="cpu").manual_seed(require_seed(seed))
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths[:-1]):
        layers += [
            _linear(fan_in, fan_out, generator, bias=False),
            nn.BatchNorm1d(fan_out, eps=eps, device="cpu"),
            nn.ReLU(),
        ]
    layers.append(_linear(widths[-2], widths[-1], generator, bias=True))
    return nn.Sequential(*layers)


def paper_dropout_mlp(
    in_features: int, rate: float, out_features: int = 1, hidden: Sequence[int] = (50, 50), seed: int = 0
) -> nn.Sequential:
    """Return the same paper's network with dropout before each linear layer, including the first, and no batch norm.

    Weights are as in `paper_mlp`, biases are 0.

    Args:
        in_features, out_features, hidden, seed: As in `paper_mlp`.
        rate: Dropout rate.
    """
    rate = require_number("rate", rate, least=0, below=1, requirement="a probability from 0 to below 1")
    layers: list[nn.Module] = []
    for layer in plain_mlp(in_features, out_features, hidden, seed):
        layers += [nn.Dropout(rate), layer] if isinstance(layer, nn.Linear) else [layer]
    return nn.Sequential(*layers)


def plain_mlp(
    in_features: int, out_features: int = 1, hidden: Sequence[int] = (50, 50), seed: int = 0
) -> nn.Sequential:
    """Return the same network with neither batch norm nor dropout: linear layers with biases, which are 0, and ReLU.

    Args:
        in_features, out_features, hidden, seed: As in `paper_mlp`.
    """
    widths = _widths(in_features, hidden, out_features)
    generator = torch.Generator(device="cpu").manual_seed(require_seed(seed))
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths[:-1]):
        layers += [_linear(fan_in, fan_out, generator, bias=True), nn.ReLU()]
    return nn.Sequential(*layers, _linear(widths[-2], widths[-1], generator, bias=True))


def _widths(in_features: Any, hidden: Any, out_features: Any) -> list[int]:
    """Return the number of units of all layers, including the input, or refuse them."""
    sizes = [in_features, *(hidden if isinstance(hidden, Iterable) else [None]), out_features]
    widths = [width for width in map(as_whole, sizes) if width is not None and width >= 1]
    if len(widths) < len(sizes):
        raise BayesNormError(
            f"in_features, out_features and hidden must be whole numbers from 1, got {in_features!r}, "
            f"{out_features!r} and {hidden!r}."
        )
    return widths


def _linear(fan_in: int, fan_out: int, generator: torch.Generator, *, bias: bool) -> nn.Linear:
    """Return a linear layer with the paper's weights and biases of 0."""
    # skip_init: the constructor's own initialisation would use the global generator.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, fan_in, fan_out, bias=bias, device="cpu")
    nn.init.trunc_normal_(layer.weight, std=WEIGHT_STD, a=-2 * WEIGHT_STD, b=2 * WEIGHT_STD, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
