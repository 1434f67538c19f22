"""Network outputs as a Gaussian: a mean, and a root of the covariance of each row's outputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..likelihoods import Likelihood
from ..predictive import Predictive
from ..predictive.base import at_least_single

# Cheap draws of the outputs (no network pass) where a likelihood has no closed form, half of them mirrored.
SOFTMAX_SAMPLES = 256


@dataclass(frozen=True)
class GaussianOutputs:
    """f(x) ~ N(mean, root root^T) for each row.

    Args:
        mean: (batch, *out).
        root: (batch, outputs, R), with `outputs` the flattened *out.
    """

    mean: Tensor
    root: Tensor

    @property
    def variance(self) -> Tensor:
        """Variance of each output, (batch, *out)."""
        return self.root.square().sum(2).view_as(self.mean)

    def predictive(self, likelihood: Likelihood, seed: int) -> Predictive:
        """Closed form where the likelihood has one, else over draws of the outputs."""
        exact = likelihood.gaussian_predictive(at_least_single(self.mean), at_least_single(self.variance))
        return likelihood.predictive(self.sample(SOFTMAX_SAMPLES, seed)) if exact is None else exact

    def sample(self, n: int, seed: int) -> Tensor:
        """n draws of the outputs in mirrored pairs, whose mean is `mean`: (n, batch, *out)."""
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(self.root.shape[2], n // 2, generator=generator, dtype=torch.float64).to(self.root)
        with torch.autocast(self.root.device.type, enabled=False):
            deviation = (self.root @ noise).movedim(2, 0).reshape(n // 2, *self.mean.shape)
        return torch.cat([self.mean + deviation, self.mean - deviation])
