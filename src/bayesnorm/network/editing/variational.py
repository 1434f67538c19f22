"""Make networks whose weights are sampled in every forward pass, with derivatives for the weights' distribution.

This applies to the weights of linear and convolutional layers.

The entries of a weight tensor are W = m M + sigma eps, where the multiplier m is 1 or a random vector along one axis,
or W = m (M + sigma eps), where m multiplies the noise too. There are three *estimators* for a forward pass. With each
of them every example gets weights of exactly this distribution, so the mean loss over examples is an unbiased estimate
of the expected loss:

- "weights": one sample for all examples replaces the weights. It works for every network.
- "flipout" (Wen et al. 2018): every example has its own sample, which is the shared sigma eps with random signs for
  each of its input and output channels. It costs two maps instead of one.
- "local" (Kingma et al. 2015): the outputs of a linear layer are sampled from their Gaussian given the input, N((x m)
  M, x^2 sigma^2), independently for every example. It costs two maps and has the least noise.

"local" is exact if an example uses the weights once. If it uses them at many places (pixels of a convolution, steps of
a sequence), noise that is independent between places corresponds to no sample of the weights, so flipout is used. If
several layers share a weight, a layer runs several times, or a subclass has a custom forward, "weights" is used.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd

from ...errors import NetworkError
from ..calling import called_modules
from ..copying import private_copy
from ..layers import module_kinds
from ..restoring import isolated_torch_randomness
from .units import PLAIN_FORWARDS

Estimator = Literal["local", "flipout", "weights"]


class RandomWeights(nn.Module):
    """The distribution of one weight tensor, W = m M + softplus(rho) eps, with entries independent given m.

    With `multiplies_noise` it is W = m (M + softplus(rho) eps).

    Args:
        mean: M, the network's own parameter.
        std: The initial standard deviations, in its shape.
        axis: The axis of the tensor that the multiplier m belongs to: 0 for output, 1 for input channels.
    """

    multiplies_noise: ClassVar[bool] = False

    def __init__(self, mean: nn.Parameter, std: Tensor, axis: int = 0) -> None:
        super().__init__()
        self.mean = mean
        self.rho = nn.Parameter(std + torch.log(-torch.expm1(-std)))  # the inverse of softplus
        self.axis = axis

    @property
    def std(self) -> Tensor:
        """Return the standard deviations sigma, in the tensor's shape."""
        return functional.softplus(self.rho)

    def multipliers(self, n: int) -> Tensor | None:
        """Return n samples of m, (n, channels), or None if m is 1."""
        return None

    def samples(self, n: int) -> Tensor:
        """Return n samples of W, (n, *shape)."""
        mean: Tensor = self.mean
        multipliers = self.multipliers(n)
        along = None if multipliers is None else self.along(multipliers)
        if along is not None and not self.multiplies_noise:
            mean = mean * along
        sampled = mean + self.std * torch.randn(n, *self.mean.shape, dtype=mean.dtype, device=mean.device)
        return sampled * along if along is not None and self.multiplies_noise else sampled

    def along(self, values: Tensor) -> Tensor:
        """Return values (..., channels) reshaped to the multiplier's axis of the tensor."""
        shape = [1] * self.mean.dim()
        shape[self.axis] = -1
        return values.view(*values.shape[:-1], *shape)


@dataclass(frozen=True)
class WeightTensor:
    """A weight or bias that can be sampled.

    Args:
        name: Its name in `named_parameters`.
        parameter: The tensor.
        is_bias: Whether it is a bias.
        axis: The axis of multipliers: inputs of linear layers, outputs of convolutions.
    """

    name: str
    parameter: nn.Parameter
    is_bias: bool
    axis: int


def weight_tensors(network: nn.Module) -> list[WeightTensor]:
    """Return trainable weights and biases of linear and convolutional layers; refuse a network without any."""
    roles: dict[int, tuple[bool, int]] = {}
    for _, module in network.named_modules():
        if isinstance(module, nn.Linear | _ConvNd):
            axis = 1 if isinstance(module, nn.Linear) else 0
            for key in ("weight", "bias"):
                parameter = module._parameters.get(key)
                if parameter is not None and parameter.requires_grad:
                    roles.setdefault(id(parameter), (key == "bias", 0 if key == "bias" else axis))
    tensors = [
        WeightTensor(name, parameter, *roles[id(parameter)])
        for name, parameter in network.named_parameters()
        if id(parameter) in roles
    ]
    if all(tensor.is_bias for tensor in tensors):
        raise NetworkError(
            "model: it has no linear or convolutional layer with a weight that requires a gradient (its modules are "
            f"{module_kinds(network)}). Pass a network with Linear or Conv1d/2d/3d layers that are not all frozen."
        )
    return tensors


class NoisyNetwork(nn.Module):
    """A network whose weights are sampled in every forward pass, in training and in evaluation mode.

    Args:
        network: The network, which must not be the user's: forwards of its layers are replaced.
        weights: The distributions by parameter name; their means are the network's own parameters.
        estimator: The estimator of a forward pass; see the module's docstring.
        example: Some inputs, used to find out which layers run exactly once.
    """

    def __init__(self, network: nn.Module, weights: dict[str, Any], estimator: Estimator, example: Tensor) -> None:
        super().__init__()
        self.network = network
        self.weights = nn.ModuleList(weights.values())
        self._replaced: dict[str, RandomWeights] = dict(weights)  # those sampled once for all examples
        self._rows = 0  # number of examples in the current forward pass
        self._ran = set[str]()  # layers with their own samples that already ran in it
        if estimator != "weights":
            self._replace_forwards(weights, estimator, example)

    def forward(self, x: Tensor) -> Any:
        self._rows, self._ran = len(x), set()
        sampled = {name: weights.samples(1)[0] for name, weights in self._replaced.items()}
        return functional_call(self.network, sampled, (x,)) if sampled else self.network(x)

    def entered(self, layer: str) -> int:
        """Record that a layer runs, and return the number of examples in the forward pass."""
        if layer in self._ran:
            raise NetworkError(
                f"model: layer {layer!r} runs once in evaluation mode and more often in training mode, where its "
                'samples must agree. Use estimator="weights".'
            )
        self._ran.add(layer)
        return self._rows

    def _replace_forwards(self, weights: dict[str, RandomWeights], estimator: Estimator, example: Tensor) -> None:
        """Make layers that use their weights once per forward pass sample them for every example."""
        calls = _calls(self.network, example)
        owned = [p for _, module in self.network.named_modules() for p in module._parameters.values() if p is not None]
        uses = Counter(id(parameter) for parameter in owned)
        names = {id(distribution.mean): name for name, distribution in weights.items()}
        for layer, module in self.network.named_modules():
            if calls[layer] != 1 or "forward" in vars(module) or type(module).forward not in PLAIN_FORWARDS:
                continue
            weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
            if id(weight) in names and uses[id(weight)] == 1 and uses[id(bias)] <= 1:
                random_weight = weights[names[id(weight)]]
                random_bias = weights[names[id(bias)]] if id(bias) in names else bias
                module.forward = _NoisyLayer(self, layer, module, random_weight, random_bias, estimator == "local")
                self._replaced.pop(names[id(weight)])
                self._replaced.pop(names.get(id(bias), ""), None)


@dataclass(frozen=True)
class _NoisyLayer:
    """The forward of a linear or convolutional layer with weights sampled for every example."""

    network: NoisyNetwork
    name: str
    module: nn.Module
    weight: RandomWeights
    bias: RandomWeights | Tensor | None
    local: bool

    def __call__(self, input: Tensor) -> Tensor:
        rows, linear, x = self.network.entered(self.name), isinstance(self.module, nn.Linear), input
        by_row = len(x) == rows and (x.dim() >= 2 if linear else x.dim() == self.weight.mean.dim())
        if not by_row:  # examples were folded into another axis: one sample for all
            bias = self.bias.samples(1)[0] if isinstance(self.bias, RandomWeights) else self.bias
            return self._map(x, self.weight.samples(1)[0], bias)
        multipliers = self.weight.multipliers(rows)
        mean = self._mean(x, multipliers)
        into, out = (multipliers, None) if self.weight.axis == 1 else (None, multipliers)
        if self.weight.multiplies_noise and into is not None:
            x = x * self._along(into, x)
        if self.local and linear and x.dim() == 2 and out is None:
            return mean + self._local_noise(x)
        return mean + self._flipout_noise(x, mean, rows, out if self.weight.multiplies_noise else None)

    def _mean(self, x: Tensor, multipliers: Tensor | None) -> Tensor:
        bias = self.bias.mean if isinstance(self.bias, RandomWeights) else self.bias
        if multipliers is None:
            return self._map(x, self.weight.mean, bias)
        if self.weight.axis == 1:
            return self._map(x * self._along(multipliers, x), self.weight.mean, bias)
        mapped = self._map(x, self.weight.mean, None)
        mapped = mapped * self._along(multipliers, mapped)
        return mapped if bias is None else mapped + self._along(bias, mapped)

    def _local_noise(self, x: Tensor) -> Tensor:
        bias_var = self.bias.std.square() if isinstance(self.bias, RandomWeights) else None
        var = functional.linear(x.square(), self.weight.std.square(), bias_var)
        # An all-zero input has zero variance, where the square root has no derivative.
        return var.clamp_min(torch.finfo(var.dtype).tiny).sqrt() * torch.randn_like(var)

    def _flipout_noise(self, x: Tensor, mean: Tensor, rows: int, multipliers: Tensor | None) -> Tensor:
        channels = -1 if isinstance(self.module, nn.Linear) else 1
        into, out = _signs(x, rows, x.shape[channels]), _signs(mean, rows, mean.shape[channels])
        std = self.weight.std
        mapped = self._map(x * self._along(into, x), std * torch.randn_like(std), None)
        noise = mapped * self._along(out if multipliers is None else out * multipliers, mapped)
        if isinstance(self.bias, RandomWeights):
            std = self.bias.std
            noise = noise + self._along(std * torch.randn(rows, len(std), dtype=std.dtype, device=std.device), noise)
        return noise

    def _map(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if isinstance(self.module, nn.Linear):
            return functional.linear(x, weight, bias)
        return self.module._conv_forward(x, weight, bias)  # type: ignore[operator]

    def _along(self, values: Tensor, h: Tensor) -> Tensor:
        """Return values (channels,) or (examples, channels) reshaped to the channels of `h`."""
        *rows, channels = values.shape
        ones = [1] * (h.dim() - 2)
        return (
            values.view(*rows, *ones, channels)
            if isinstance(self.module, nn.Linear)
            else values.view(*values.shape, *ones)
        )


def _signs(like: Tensor, rows: int, channels: int) -> Tensor:
    """Return random signs, 1 or -1, for every example and channel."""
    return torch.empty(rows, channels, dtype=like.dtype, device=like.device).bernoulli_().mul_(2).sub_(1)


@torch.no_grad()
def _calls(network: nn.Module, x: Tensor) -> Counter[str]:
    """Return how often every module runs in a forward pass in evaluation mode."""
    watched = private_copy(network)
    with isolated_torch_randomness(0, x.device):
        return Counter(called_modules(watched, dict(watched.named_modules()), x))
