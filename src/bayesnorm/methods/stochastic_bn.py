"""Stochastic Batch Normalization (Atanov, Ashukha, Molchanov, Neklyudov and Vetrov, 2018).

The joint distribution of a batch's statistics is replaced by independent ones per channel,

    mean_B ~ N(m, s^2),     sigma_B ~ LogNormal(l, r^2),

with moments matched over many training batches (in log space for sigma). Samples then need no training data.

In the coordinates of the posterior, log(variance + eps), a log-normal sigma is a normal coordinate: twice log sigma, so
r is half of that coordinate's standard deviation.

Gotchas:
- Channels and layers of one batch are strongly correlated, and the samples here are not: on a ResNet-32 two thirds of the
  logits' variance are lost (see the README's table). `GaussianBN(rank=...)` keeps it, and needs no data either.
- Moments are accumulated over all `states` batches alike; an exponential average with momentum 0.1, as in running
  statistics, would see about 19 of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..posterior import LowRankGaussian
from .batchnorm_method import BatchNormMethod


@dataclass(frozen=True)
class StochasticBN(BatchNormMethod):
    """Stochastic batch normalization: independent normal means and log-normal standard deviations.

    Args:
        batch_size: M, rows per batch; None takes a `DataLoader`'s own.
        states: S, how many batches the moments are taken over.
        layers: Which batch-norm layers are drawn; see `MCBN`.
        center: "running" (samples about the network's own running statistics) or "batch" (as published).
    """

    def distribution(self, deviations: Tensor) -> LowRankGaussian:
        std = deviations.double().square().mean(0).sqrt()
        return LowRankGaussian.independent(std.to(deviations.dtype))
