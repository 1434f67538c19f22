"""Run several streams through one network at once, each with its own batch-norm statistics and affine parameters.

Most methods of test-time adaptation change nothing but batch norm, so streams can share the convolutions. A batch holds
the first image of every stream, then the second of every stream, and so on. One batch-norm layer for G streams and C
channels is then one for G * C channels, and each stream gets what it would get alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GroupedNorm(nn.Module):
    """Batch norm of G streams with the network's own statistics; subclasses have other ones.

    Args:
        layer: The layer of the network.
        groups: Number of streams, G.
    """

    def __init__(self, layer: nn.BatchNorm2d, groups: int) -> None:
        super().__init__()
        assert layer.running_mean is not None
        assert layer.running_var is not None
        self.groups, self.eps = groups, layer.eps
        self.weight = nn.Parameter(layer.weight.detach().repeat(groups, 1))
        self.bias = nn.Parameter(layer.bias.detach().repeat(groups, 1))
        self.mean: Tensor
        self.var: Tensor
        self.register_buffer("mean", layer.running_mean.detach().repeat(groups, 1))
        self.register_buffer("var", layer.running_var.detach().repeat(groups, 1))

    def forward(self, x: Tensor) -> Tensor:
        count, (channels, height, width) = len(x) // self.groups, x.shape[1:]
        return self.normalised(x.reshape(count, self.groups * channels, height, width)).view(x.shape)

    def normalised(self, x: Tensor) -> Tensor:
        """Return the layer's output for inputs (B, G * C, H, W)."""
        return self.by(x, self.mean, self.var)

    def by(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise by statistics (G, C), which have no gradient."""
        return F.batch_norm(x, mean.flatten(), var.flatten(), self.weight.flatten(), self.bias.flatten(), eps=self.eps)

    def by_differentiable(self, x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Normalise by statistics (G, C), or (B, G, C) of single images, through which gradients flow."""
        images = x.view(len(x), *self.weight.shape, *x.shape[2:])
        scale = self.weight * (var + self.eps).rsqrt()
        result = images * scale[..., None, None] + (self.bias - mean * scale)[..., None, None]
        return result.view(x.shape)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of every stream's inputs, (G, C)."""
        var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
        return mean.view(self.weight.shape), var.view(self.weight.shape)


class BatchNorm(GroupedNorm):
    """Every stream is normalised by the statistics of its batch (Nado et al. 2020)."""

    def normalised(self, x: Tensor) -> Tensor:
        weight, bias = (part.expand(self.groups, -1).flatten() for part in (self.weight, self.bias))
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=self.eps)


class BlendedNorm(GroupedNorm):
    """Statistics of the batch, blended with the network's own as with N more images (Schneider et al. 2020)."""

    own_images = 16

    def normalised(self, x: Tensor) -> Tensor:
        mean, var = self.moments(x)
        share = len(x) / (self.own_images + len(x))
        return self.by(x, torch.lerp(self.mean, mean, share), torch.lerp(self.var, var, share))


def grouped_network(
    network: nn.Module, groups: int, layer: Callable[[nn.BatchNorm2d, int], GroupedNorm] = GroupedNorm
) -> nn.Module:
    """Return a copy of a network for G streams; only weights and biases of batch norm have gradients."""
    grouped = copy.deepcopy(network).eval().requires_grad_(False)
    for name, module in list(grouped.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            parent, _, leaf = name.rpartition(".")
            setattr(grouped.get_submodule(parent), leaf, layer(module, groups))
    return grouped


def norms(network: nn.Module) -> list[GroupedNorm]:
    """Return the batch-norm layers of a grouped network."""
    return [module for module in network.modules() if isinstance(module, GroupedNorm)]


def affine(network: nn.Module) -> list[Tensor]:
    """Return weights and biases of batch norm, each (G, C)."""
    return [parameter for layer in norms(network) for parameter in (layer.weight, layer.bias)]


def run(network: nn.Module, x: Tensor) -> Tensor:
    """Return the logits (B, G, K) of B images of each of G streams, (B, G, 3, H, W)."""
    return network(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def entropy(logits: Tensor) -> Tensor:
    """Return the entropy of the softmax of logits, in nats."""
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)
