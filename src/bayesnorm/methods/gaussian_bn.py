"""Gaussian posteriors over batch-norm statistics, which need no training data after the fit.

Factorised (`rank=None`), from appendix 1.3 of Teye et al. (2018). By the central limit theorem, the batch statistics of
a unit with pre-activation mean mu, variance s^2 and fourth central moment m4 are distributed as

    mean_B ~ N(mu, s^2 / M),     std_B ~ N(s, (m4 - s^4) / (4 s^2 M)).

One pass over the data, in batches as in training, gives the moments for any M. For a convolution, a batch contains M
independent images, not M x pixels independent values. Therefore the variances are those of the per-image averages of h
and of (h - mu)^2. For a fully connected layer that is the formula above. The standard deviation is modelled in log
space, where it stays positive; to first order in 1/sqrt(M) the two are the same.

Correlated (`rank=R`): mean and covariance of *all* layers' statistics over `states` real batches, as R principal
directions plus the remaining variance of each coordinate.

Notes:
- Channels and layers of one batch vary together. Factorised samples lose that: with each coordinate's true variance (as
  in `StochasticBN`), a ResNet-32 loses about two thirds of the logits' variance.
- The central-limit variances of later layers are too large: in a training pass, earlier layers normalise by the batch,
  which removes part of the variation. The two errors have opposite signs, and their sizes are not known in advance.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import require_whole
from ..network import UnitMoments
from ..posterior import Fluctuations, LowRankGaussian, coordinates
from .batchnorm_method import BatchNormMethod, Collected


@dataclass(frozen=True)
class GaussianBN(BatchNormMethod):
    """Fit a Gaussian over batch-norm statistics, with independent units or with low-rank correlations.

    Use `rank=64` or so for a compact posterior that behaves like MCBN, with an unlimited number of distinct samples.
    `fit(model, train_data, likelihood)` returns a `BatchNormPosterior`; the model is not modified.

    Reference: Teye, Azizpour and Smith, "Bayesian uncertainty estimation for batch normalized deep networks",
    ICML 2018, appendix 1.3.

    Args:
        batch_size: Examples per batch, M. Use the batch size of training. Default: None, the batch size of a
            `DataLoader`.
        states: Number of batches that the correlations are computed from. Unused if `rank` is None. Default: 256.
        layers: Batch-norm layers to sample; see `MCBN`. Default: None, all layers.
        center: Sample around the network's running statistics ("running") or around the moments of the data ("batch").
            Default: "running".
        rank: Number of directions of the joint covariance to keep. Default: None, independent units.
    """

    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is not None:
            requirement = f"None or a whole number from 1 to {self.states - 1} with states={self.states}"
            require_whole("rank", self.rank, 1, self.states - 1, requirement=requirement)

    def distribution(self, deviations: Tensor) -> LowRankGaussian:
        assert self.rank is not None
        return LowRankGaussian.fit(deviations, self.rank)

    @property
    def from_batches(self) -> bool:
        return self.rank is not None

    def summarised(self, collected: Collected) -> tuple[Tensor, Fluctuations]:
        if not isinstance(collected, UnitMoments):
            return super().summarised(collected)
        statistics = collected.statistics
        batch_mean = coordinates(statistics.mean[0], statistics.var[0], statistics.layers)
        eps = torch.cat([statistics.mean.new_full((layer.channels,), layer.eps) for layer in statistics.layers])
        relative = collected.square_std / (statistics.var[0] + eps)
        std = torch.cat([collected.mean_std, relative], -1) / statistics.batch_size**0.5
        return batch_mean, LowRankGaussian.independent(std)
