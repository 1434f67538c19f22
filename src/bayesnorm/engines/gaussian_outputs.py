"""Gaussian network outputs: a mean and a root of the covariance for the outputs of each example."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..likelihoods import Likelihood
from ..predictive import Predictive, at_least_single
from .monte_carlo import Take, summary_of

# Number of output samples if a likelihood has no closed form. They need no forward pass, and half of them are mirrored.
SOFTMAX_SAMPLES = 256

# Memory of the samples that are added to a summary at once.
BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class GaussianOutputs:
    """Outputs f(x) ~ N(mean, root root^T) for each example.

    Args:
        mean: (batch, *out).
        root: (batch, outputs, R), with `outputs` the flattened *out.
    """

    mean: Tensor
    root: Tensor

    @property
    def variance(self) -> Tensor:
        """The variance of each output, (batch, *out)."""
        return self.root.square().sum(2).view_as(self.mean)

    def predictive(self, likelihood: Likelihood, seed: int) -> Predictive:
        """Return the predictive, in closed form if the likelihood has one, otherwise from samples of the outputs."""
        exact = self._exact(likelihood)
        return likelihood.predictive(self.sample(SOFTMAX_SAMPLES, seed)) if exact is None else exact

    def summary(self, likelihood: Likelihood, seed: int) -> Predictive:
        """Return the summary, to which samples of the outputs are added in blocks."""
        exact = self._exact(likelihood)
        if exact is not None:
            return exact
        noise = self._noise(SOFTMAX_SAMPLES, seed)
        row_bytes = self.mean[0].numel() * self.mean.element_size()

        def run_parts(take: Take) -> None:
            rows = max(1, BLOCK_BYTES // (2 * row_bytes))
            pairs = max(1, BLOCK_BYTES // (2 * rows * row_bytes))
            for start in range(0, len(self.mean), rows):
                part = slice(start, start + rows)
                for some in noise.split(pairs, dim=1):
                    take(part, self._deviated(part, some), None)

        return summary_of(likelihood, len(self.mean), run_parts)

    def sample(self, n: int, seed: int) -> Tensor:
        """Return n samples of the outputs in mirrored pairs, whose mean is `mean`: (n, batch, *out)."""
        return self._deviated(slice(None), self._noise(n, seed))

    def _exact(self, likelihood: Likelihood) -> Predictive | None:
        return likelihood.gaussian_predictive(at_least_single(self.mean), at_least_single(self.variance))

    def _noise(self, n: int, seed: int) -> Tensor:
        """Return standard normal numbers for n samples, (R, n / 2); the other half mirrors them."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(self.root.shape[2], n // 2, generator=generator, dtype=torch.float64).to(self.root)

    def _deviated(self, rows: slice, noise: Tensor) -> Tensor:
        """Return samples of some examples' outputs, followed by their mirrored samples."""
        mean = self.mean[rows]
        with torch.autocast(self.root.device.type, enabled=False):
            deviation = (self.root[rows] @ noise).movedim(2, 0).reshape(noise.shape[1], *mean.shape)
        return torch.cat([mean + deviation, mean - deviation])
