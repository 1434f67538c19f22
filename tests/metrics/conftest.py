"""Predictives that the tests of scores share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from bayesnorm.predictive import ClassificationPredictive, RegressionPredictive


@dataclass(frozen=True)
class FlatNoise:
    """Uniform between -1 and 1: a family that is not normal."""

    variance: float = 1 / 3

    def log_prob(self, z: Tensor) -> Tensor:
        return torch.where(z.abs() <= 1, -torch.log(torch.tensor(2.0, dtype=z.dtype)), -torch.inf)

    def cdf(self, z: Tensor) -> Tensor:
        return ((z + 1) / 2).clamp(0, 1)

    def icdf(self, level: Tensor) -> Tensor:
        return 2 * level - 1


@pytest.fixture
def flat_noise() -> FlatNoise:
    return FlatNoise()


@pytest.fixture
def make_regression() -> Callable[..., tuple[RegressionPredictive, Tensor]]:
    """A mixture with its own scale for every draw and point, uneven weights, and targets: `(predictive, y)`."""

    def make(samples: int = 7, shape: tuple[int, ...] = (11,), seed: int = 0, dtype: torch.dtype = torch.float64):
        generator = torch.Generator().manual_seed(seed)
        loc = 2 * torch.randn(samples, *shape, generator=generator, dtype=dtype) + 5
        scale = 0.2 + torch.rand(samples, *shape, generator=generator, dtype=dtype)
        weights = 0.1 + torch.rand(samples, generator=generator, dtype=dtype)
        y = 2 * torch.randn(*shape, generator=generator, dtype=dtype) + 5
        return RegressionPredictive(loc, scale, weights), y

    return make


@pytest.fixture
def make_classification() -> Callable[..., tuple[ClassificationPredictive, Tensor]]:
    """Class probabilities of several samples and targets: `(predictive, y)`."""

    def make(samples: int = 5, batch: int = 40, classes: int = 4, pixels: tuple[int, ...] = (), seed: int = 0):
        generator = torch.Generator().manual_seed(seed)
        logits = 2 * torch.randn(samples, batch, classes, *pixels, generator=generator, dtype=torch.float64)
        weights = 0.1 + torch.rand(samples, generator=generator, dtype=torch.float64)
        predictive = ClassificationPredictive(torch.log_softmax(logits, 2), weights)
        return predictive, torch.randint(classes, (batch, *pixels), generator=generator)

    return make


def gaussian(mean: Tensor, std: Tensor | float) -> RegressionPredictive:
    """N(mean, std^2) as a predictive of one draw."""
    return RegressionPredictive(mean[None], torch.as_tensor(std, dtype=mean.dtype))


@pytest.fixture
def make_gaussian() -> Callable[[Tensor, Tensor | float], RegressionPredictive]:
    return gaussian
