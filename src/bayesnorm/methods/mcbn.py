"""Monte Carlo Batch Normalization (Teye, Azizpour and Smith, ICML 2018).

Training with batch norm samples, at every step, the statistics w = (mean_B, var_B) of a random mini-batch B. MCBN takes
that for a draw from an approximate posterior q(w) and predicts with

    p(y | x)  ~  1/T  sum_t  p(y | f(x; w_t)),     w_t = statistics of the t-th random training mini-batch,

all layers of a draw from one pass over one batch. The predictive covariance is the spread of f plus 1/precision.

Gotchas:
- `batch_size` is the batch size that the network was trained with, unless you mean to change the uncertainty: the spread
  falls as 1/M. `posterior.at_batch_size` changes it afterwards.
- As published (`center="batch"`) samples lie about the mean *batch* statistics, which are not the running statistics that
  the deployed network uses: the mean prediction moves and accuracy can fall. `center="running"`, the default, keeps the
  network's own statistics as the centre and adds only the batches' deviations from their mean.
- `states` bounds how many distinct samples there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..posterior import Empirical
from .batchnorm_method import BatchNormMethod


@dataclass(frozen=True)
class MCBN(BatchNormMethod):
    """Monte Carlo Batch Normalization: samples are the statistics of real training batches, all layers together.

    Args:
        batch_size: M, rows per batch; None takes a `DataLoader`'s own.
        states: S, how many batches' statistics are kept.
        layers: Which batch-norm layers are drawn: names, a predicate `(name, module) -> bool`, the last k as they run,
            or None for all. What comes before the first of them is computed once, not once per draw.
        center: "running" (samples about the network's own running statistics) or "batch" (as published).
    """

    def distribution(self, deviations: Tensor) -> Empirical:
        return Empirical(deviations)
