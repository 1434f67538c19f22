"""Each layer of a stack while it is trained: forward, and gradients written out by hand.

Autograd would do the same at several times the cost: these networks are so small that its bookkeeping, and the
temporaries that it keeps, take longer than their products. Activations are (networks, rows, channels).
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from .architecture import Activation, Dense, Drop, Norm
from .bundle import Bundle


class TrainedLayer(Protocol):
    """A layer that is run forwards, then backwards."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the layer's output, and remember what `backward` needs."""

    def backward(self, d: Tensor) -> Tensor:
        """Return the loss's gradient at the input, of that at the output `d`; store the gradients of the weights."""


class TrainedDense:
    """A linear layer, h W^T + b, with lambda/2 |W|^2 in the loss.

    Args:
        layer: The layer's name and sizes.
        weights: All networks' weights.
        gradients: Where their gradients are written.
        decay: lambda, (networks, 1, 1); None where all are 0.
        first: Whether no layer before it has weights, so that none needs a gradient.
    """

    def __init__(self, layer: Dense, weights: Bundle, gradients: Bundle, decay: Tensor | None, first: bool) -> None:
        self.weight, self.weight_grad = (bundle[f"{layer.name}.weight"] for bundle in (weights, gradients))
        self.bias = weights[f"{layer.name}.bias"].unsqueeze(1) if layer.bias else None
        self.bias_grad = gradients[f"{layer.name}.bias"] if layer.bias else None
        self.decay, self.first = decay, first

    def forward(self, h: Tensor) -> Tensor:
        self.h = h
        return torch.bmm(h, self.weight.mT) if self.bias is None else torch.baddbmm(self.bias, h, self.weight.mT)

    def backward(self, d: Tensor) -> Tensor:
        if self.decay is None:
            torch.bmm(d.mT, self.h, out=self.weight_grad)
        else:
            torch.mul(self.weight, self.decay, out=self.weight_grad)
            self.weight_grad.baddbmm_(d.mT, self.h)
        if self.bias_grad is not None:
            torch.sum(d, 1, out=self.bias_grad)
        return d if self.first else torch.bmm(d, self.weight)


class TrainedNorm:
    """Batch norm in training mode: by the batch's mean and biased variance; running ones follow (unbiased).

    Args:
        layer: The layer's name and constants.
        weights: All networks' weights.
        gradients: Where their gradients are written.
        buffers: Their running statistics.
    """

    def __init__(self, layer: Norm, weights: Bundle, gradients: Bundle, buffers: Bundle) -> None:
        self.gamma, self.beta = (weights[f"{layer.name}.{part}"].unsqueeze(1) for part in ("weight", "bias"))
        self.gamma_grad, self.beta_grad = (
            gradients[f"{layer.name}.{part}"].unsqueeze(1) for part in ("weight", "bias")
        )
        self.mean, self.var = (buffers[f"{layer.name}.running_{part}"].unsqueeze(1) for part in ("mean", "var"))
        self.eps, self.momentum = layer.eps, layer.momentum

    def forward(self, h: Tensor) -> Tensor:
        rows = h.shape[1]
        mean = h.mean(1, keepdim=True)
        self.centred = h - mean
        var = self.centred.square().mean(1, keepdim=True)
        self.mean.lerp_(mean, self.momentum)
        self.var.lerp_(var * (rows / (rows - 1)), self.momentum)
        self.inverse = torch.rsqrt(var + self.eps)
        return torch.addcmul(self.beta, self.centred, self.gamma * self.inverse)

    def backward(self, d: Tensor) -> Tensor:
        torch.sum(d, 1, keepdim=True, out=self.beta_grad)
        torch.mul((d * self.centred).sum(1, keepdim=True), self.inverse, out=self.gamma_grad)
        scale = self.gamma * self.inverse
        share = scale / -d.shape[1]
        through = torch.addcmul(share * self.beta_grad, d, scale)
        return through.addcmul_(self.centred, share * self.inverse * self.gamma_grad)


class TrainedDrop:
    """Dropout, by `factors` that the block sets before every step: (networks, rows, channels), 0 or 1 / (1 - rate)."""

    def __init__(self, layer: Drop) -> None:
        self.name = layer.name
        self.factors: Tensor | None = None

    def forward(self, h: Tensor) -> Tensor:
        return h if self.factors is None else h * self.factors

    def backward(self, d: Tensor) -> Tensor:
        return d if self.factors is None else d * self.factors


class TrainedFork:
    """Where a way around some layers begins; it keeps what goes that way."""

    def forward(self, h: Tensor) -> Tensor:
        self.h = h
        return h

    def backward(self, d: Tensor) -> Tensor:
        return d + self.d

    d: Tensor


class TrainedJoin:
    """Where both ways are added up.

    Args:
        fork: Where they parted.
    """

    def __init__(self, fork: TrainedFork) -> None:
        self.fork = fork

    def forward(self, h: Tensor) -> Tensor:
        return h + self.fork.h

    def backward(self, d: Tensor) -> Tensor:
        self.fork.d = d
        return d


class TrainedReLU:
    """The activation max(h, 0)."""

    def forward(self, h: Tensor) -> Tensor:
        self.out = torch.relu(h)
        return self.out

    def backward(self, d: Tensor) -> Tensor:
        found: Tensor = torch.ops.aten.threshold_backward(d, self.out, 0)
        return found


class TrainedActivation:
    """Any other activation, whose slope autograd finds."""

    def __init__(self, layer: Activation) -> None:
        self.module = layer.module

    def forward(self, h: Tensor) -> Tensor:
        self.h = h.detach().requires_grad_()
        with torch.enable_grad():
            self.out: Tensor = self.module(self.h)
        return self.out.detach()

    def backward(self, d: Tensor) -> Tensor:
        return torch.autograd.grad(self.out, self.h, d)[0]


def trained_activation(layer: Activation) -> TrainedLayer:
    """Return the layer that trains an activation."""
    return TrainedReLU() if type(layer.module) is nn.ReLU else TrainedActivation(layer)
