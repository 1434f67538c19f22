"""Gaussian posteriors over batch-norm statistics: no training data is needed, or kept, after the fit.

Factorised (`rank=None`), from appendix 1.3 of Teye et al. (2018). The statistics of a unit with pre-activation mean mu,
variance s^2 and fourth central moment m4 obey, by the central limit theorem,

    mean_B ~ N(mu, s^2 / M),     std_B ~ N(s, (m4 - s^4) / (4 s^2 M)).

One pass over the data, in batches as in training, gives the moments, and any M follows without another. For a
convolution a batch holds M independent images, not M x pixels independent values, so the variances taken are those of
the images' own averages of h and of (h - mu)^2; for a fully connected layer that is the formula above. The standard
deviation is carried in log space, where it stays positive: to first order in 1/sqrt(M) the two are the same.

Correlated (`rank=R`): mean and covariance of *all* layers' statistics over `states` real batches, as R principal
directions plus what they leave of each coordinate's own variance.

Gotchas:
- Channels and layers of one batch move together, and factorised samples lose that: with each coordinate's true variance
  (as in `StochasticBN`) about two thirds of the logits' variance of a ResNet-32 are gone; the README has the table.
- The central-limit variances of later layers are too large: in a training pass the layers before them normalise by the
  batch, which takes part of its chance away. The two errors pull against each other, and neither is under control.
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
    """A Gaussian over batch-norm statistics, factorised or with low-rank correlations.

    Args:
        batch_size: M, rows per batch; None takes a `DataLoader`'s own.
        states: S, how many batches the correlations are taken over; unused where `rank` is None.
        layers: Which batch-norm layers are drawn; see `MCBN`.
        center: "running" (samples about the network's own running statistics) or "batch" (about the data's own moments).
        rank: None for independent units, or how many directions of the joint covariance to keep.
    """

    rank: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is not None:
            requirement = f"None or a whole number from 1 to {self.states - 1} with states={self.states}"
            require_whole("rank", self.rank, 1, self.states - 1, requirement=requirement)

    def distribution(self, deviations: Tensor) -> LowRankGaussian:
        assert self.rank is not None
        return LowRankGaussian.of(deviations, self.rank)

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
