"""Families of observation noise, each in standard form: location 0, scale 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class NormalNoise:
    """The standard normal distribution."""

    variance: float = 1.0

    def log_prob(self, z: Tensor) -> Tensor:
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def cdf(self, z: Tensor) -> Tensor:
        return torch.special.ndtr(z)

    def icdf(self, level: Tensor) -> Tensor:
        return torch.special.ndtri(level)


Noise = NormalNoise
