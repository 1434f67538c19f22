"""Classes from logits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import BayesNormError, InputError
from ..predictive import ClassificationPredictive
from .base import Likelihood


@dataclass(frozen=True)
class Categorical(Likelihood):
    """y ~ softmax(f / temperature) over the first output axis; further axes are pixels.

    Args:
        temperature: Above 1 softens the probabilities, below 1 sharpens them.

    A network with one output per row (or pixel) is read as a binary classifier whose output is the logit of
    class 1.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        number = self.temperature
        if not isinstance(number, int | float) or not math.isfinite(number) or number <= 0:
            raise BayesNormError(f"temperature: {number!r} was given; a positive, finite number would work.")
        object.__setattr__(self, "temperature", float(number))

    def noise_range(self, f: Tensor, y: Any) -> tuple[Tensor, Tensor]:
        """Temperatures from sharp to very soft.

        Of several draws none is sharpened more than twofold: beyond that they become votes, and a class that no draw
        votes for has probability 0, which few validation rows do not show.
        """
        return torch.tensor(0.05 if len(f) == 1 else 0.5, device=f.device), torch.tensor(20.0, device=f.device)

    def with_noise(self, noise: Tensor) -> Categorical:
        return Categorical(temperature=float(noise))

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        if f.dim() < 2:
            f = f.unsqueeze(-1)
        if f.shape[1] == 1:
            f = torch.cat([torch.zeros_like(f), f], dim=1)
        y = y.view(len(f), *f.shape[2:]).long()
        return torch.nn.functional.cross_entropy(f / self.temperature, y, reduction="sum") / len(f)

    def predictive(self, f: Tensor, weights: Tensor | None = None) -> ClassificationPredictive:
        if f.dim() < 3:
            if f.dim() != 2:
                raise InputError(f"f: outputs of shape {tuple(f.shape)}; (n, batch, class, ...) would work.")
            f = f.unsqueeze(-1)
        if f.shape[2] == 1:
            f = torch.cat([torch.zeros_like(f), f], dim=2)
        return ClassificationPredictive(torch.log_softmax(f / self.temperature, dim=2), weights)
