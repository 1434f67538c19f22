"""Stochastic Batch Normalization (Atanov, Ashukha, Molchanov, Neklyudov and Vetrov, 2018).

The joint distribution of a batch's statistics is replaced by independent distributions per channel,

    mean_B ~ N(m, s^2),     sigma_B ~ LogNormal(l, r^2),

whose moments are matched over many training batches (in log space for sigma). Sampling then needs no training data.

The posterior's coordinate log(variance + eps) is twice log sigma. So a log-normal sigma is a normal coordinate, and r
is half of that coordinate's standard deviation.

Notes:
- Channels and layers of one batch are strongly correlated, but the samples here are independent. On a ResNet-32, two
  thirds of the logits' variance are lost. `GaussianBN(rank=...)` keeps it, and needs no data for sampling either.
- All `states` batches have equal weight in the moments. An exponential average with momentum 0.1, as in running
  statistics, would cover about 19 of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..posterior import LowRankGaussian
from .batchnorm_method import BatchNormMethod


@dataclass(frozen=True)
class StochasticBN(BatchNormMethod):
    """Stochastic batch normalization: sample independent normal means and log-normal standard deviations.

    Use it to compare with the paper. For uncertainty that keeps the correlations between layers, use `MCBN` or
    `GaussianBN(rank=...)`. `fit(model, train_data, likelihood)` returns a `BatchNormPosterior`; the model is not
    modified.

    Reference: Atanov et al., "Uncertainty estimation via stochastic batch normalization", 2018.

    Args:
        batch_size: Examples per batch, M. Use the batch size of training. Default: None, the batch size of a
            `DataLoader`.
        states: Number of batches that the moments are computed from. Default: 256.
        layers: Batch-norm layers to sample; see `MCBN`. Default: None, all layers.
        center: Sample around the network's running statistics ("running") or around the mean batch statistics
            ("batch", as published). Default: "running".
    """

    def distribution(self, deviations: Tensor) -> LowRankGaussian:
        std = deviations.double().square().mean(0).sqrt()
        return LowRankGaussian.independent(std.to(deviations.dtype))
