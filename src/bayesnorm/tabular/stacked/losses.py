"""The training losses of stacked networks, with gradients in closed form; autograd would take a quarter of a step."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from ...likelihoods import HeteroscedasticGaussian
from ...predictive import gaussian_crps

_NORMAL = HeteroscedasticGaussian(axis=-1)

# Largest absolute log-variance; the noise is clipped beyond it, but its gradient is not, so that training can return.
LARGEST_LOG_VARIANCE = 25.0


@dataclass(frozen=True)
class TrainingLoss(ABC):
    """The loss of every row, (networks, rows), of outputs (networks, rows, outputs).

    Args:
        weighted: Whether the last column of the targets is the weight of the row.
    """

    weighted: bool = False

    @abstractmethod
    def losses(self, f: Tensor, y: Tensor) -> Tensor:
        """Return losses without weights."""

    @abstractmethod
    def slopes(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses without weights, and their gradients with respect to the outputs."""

    def __call__(self, f: Tensor, y: Tensor) -> Tensor:
        return y[..., -1] * self.losses(f, y[..., :-1]) if self.weighted else self.losses(f, y)

    def with_slope(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses, and their gradients with respect to the outputs, (networks, rows, outputs)."""
        if not self.weighted:
            return self.slopes(f, y)
        values, slope = self.slopes(f, y[..., :-1])
        return y[..., -1] * values, y[..., -1:] * slope


@dataclass(frozen=True)
class NormalCrps(TrainingLoss):
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
class HalfSquaredError(TrainingLoss):
    """Half the squared error, averaged over targets."""

    def losses(self, f: Tensor, y: Tensor) -> Tensor:
        return 0.5 * (f - y).square().mean(-1)

    def slopes(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return self.losses(f, y), (f - y) / f.shape[-1]


@dataclass(frozen=True)
class ClassNLL(TrainingLoss):
    """Negative log-likelihood of class numbers; outputs are logits."""

    def losses(self, f: Tensor, y: Tensor) -> Tensor:
        return -torch.log_softmax(f, -1).gather(-1, y[..., :1].long()).squeeze(-1)

    def slopes(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        log_probabilities, place = torch.log_softmax(f, -1), y[..., :1].long()
        slope = log_probabilities.exp()
        slope.scatter_add_(-1, place, slope.new_full((), -1).expand(place.shape))
        return -log_probabilities.gather(-1, place).squeeze(-1), slope
