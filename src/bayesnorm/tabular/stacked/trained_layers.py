"""Train each layer of a stack, and its loss: forward passes, and gradients in closed form.

Autograd computes the same at several times the cost: for such small networks, its overhead and temporary tensors take
longer than the matrix products. Activations are (networks, rows, channels).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...likelihoods import HeteroscedasticGaussian
from ...predictive import gaussian_crps
from .architecture import Dense, Drop, Norm
from .stack import Bundle


class TrainedLayer(Protocol):
    """A layer that is run forwards, then backwards."""

    def forward(self, h: Tensor) -> Tensor:
        """Return the layer's output, and store what `backward` needs."""

    def backward(self, d: Tensor) -> Tensor:
        """Return the loss's gradient at the input, given that at the output `d`; store the gradients of the weights."""


class TrainedDense:
    """A linear layer, h W^T + b, with lambda/2 |W|^2 in the loss.

    Args:
        layer: The layer's name and sizes.
        weights: All networks' weights.
        gradients: Tensors for their gradients.
        decay: lambda, (networks, 1, 1); None if all are 0.
        first: Whether no layer before it has weights; its input then needs no gradient.
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
    """Batch norm in training mode: normalises by the batch's mean and biased variance and updates the running ones.

    Args:
        layer: The layer's name and constants.
        weights: All networks' weights.
        gradients: Tensors for their gradients.
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
    """Dropout by `factors` that the block sets before every step: (networks, rows, channels), 0 or 1 / (1 - rate)."""

    def __init__(self, layer: Drop) -> None:
        self.name = layer.name
        self.factors: Tensor | None = None

    def forward(self, h: Tensor) -> Tensor:
        return h if self.factors is None else h * self.factors

    def backward(self, d: Tensor) -> Tensor:
        return d if self.factors is None else d * self.factors


class TrainedFork:
    """The start of a skip connection; stores its input."""

    def forward(self, h: Tensor) -> Tensor:
        self.h = h
        return h

    def backward(self, d: Tensor) -> Tensor:
        return d + self.d

    d: Tensor


class TrainedJoin:
    """The end of a skip connection, where both branches are added.

    Args:
        fork: The start of the skip connection.
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
        gradient: Tensor = torch.ops.aten.threshold_backward(d, self.out, 0)
        return gradient


_NORMAL = HeteroscedasticGaussian(axis=-1)

# Largest absolute log-variance; the noise is clipped beyond it, but its gradient is not, so that training can return.
LARGEST_LOG_VARIANCE = 25.0


@dataclass(frozen=True)
class RowLoss(ABC):
    """The loss of every row, (networks, rows), of outputs (networks, rows, outputs).

    Args:
        weighted: Whether the last column of the targets is the weight of the row.
    """

    weighted: bool = False

    @abstractmethod
    def slopes(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses without weights, and their gradients with respect to the outputs."""

    def losses(self, f: Tensor, y: Tensor) -> Tensor:
        """Return losses without weights."""
        return self.slopes(f, y)[0]

    def __call__(self, f: Tensor, y: Tensor) -> Tensor:
        return y[..., -1] * self.losses(f, y[..., :-1]) if self.weighted else self.losses(f, y)

    def with_slope(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses, and their gradients with respect to the outputs, (networks, rows, outputs)."""
        if not self.weighted:
            return self.slopes(f, y)
        values, slope = self.slopes(f, y[..., :-1])
        return y[..., -1] * values, y[..., -1:] * slope


@dataclass(frozen=True)
class NormalCrps(RowLoss):
    """CRPS of a normal distribution, averaged over targets; outputs are means, followed by log-variances."""

    def losses(self, f: Tensor, y: Tensor) -> Tensor:
        location, log_scale = _NORMAL.split(f)
        return gaussian_crps(y, location, log_scale.exp()).mean(-1)

    def slopes(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        location, log_variance = f.chunk(2, -1)
        std = (0.5 * log_variance.clamp(-LARGEST_LOG_VARIANCE, LARGEST_LOG_VARIANCE)).exp()
        error = y - location
        z = error / std
        between = torch.erf(z * math.sqrt(0.5))  # 2 Phi(z) - 1
        at_std = std * ((-0.5 * z.square()).exp() * math.sqrt(2 / math.pi) - 1 / math.sqrt(math.pi))
        slope = torch.cat([-between, 0.5 * at_std], -1) / error.shape[-1]
        return (error * between + at_std).mean(-1), slope


@dataclass(frozen=True)
class HalfSquaredError(RowLoss):
    """Half the squared error, averaged over targets."""

    def slopes(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        error = f - y
        return 0.5 * error.square().mean(-1), error / f.shape[-1]


@dataclass(frozen=True)
class ClassNLL(RowLoss):
    """Negative log-likelihood of class numbers; outputs are logits."""

    def slopes(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities, place = torch.log_softmax(f, -1), y[..., :1].long()
        slope = log_probabilities.exp()
        slope.scatter_add_(-1, place, slope.new_full((), -1).expand(place.shape))
        return -log_probabilities.gather(-1, place).squeeze(-1), slope
