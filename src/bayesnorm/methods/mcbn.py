"""Monte Carlo Batch Normalization (Teye, Azizpour and Smith, ICML 2018).

Training with batch norm samples the statistics w = (mean_B, var_B) of a random mini-batch B at every step. MCBN treats
them as samples from an approximate posterior q(w) and predicts with

    p(y | x)  ~  1/T  sum_t  p(y | f(x; w_t)),     w_t = statistics of the t-th random training mini-batch.

All layers of a sample use statistics from one forward pass of one batch. The predictive covariance is the covariance of
f plus 1/precision.

Notes:
- Set `batch_size` to the batch size M of training, unless you want to change the uncertainty: the epistemic variance is
  proportional to 1/M. `posterior.at_batch_size` changes it afterwards.
- As published (`center="batch"`), samples lie around the mean *batch* statistics, which differ from the running
  statistics of the deployed network. The mean prediction changes, and accuracy can fall. `center="running"`, the
  default, keeps the running statistics as the centre and only adds the batches' deviations from their mean.
- There are at most `states` distinct samples.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..posterior import Empirical
from .batchnorm_method import BatchNormMethod


@dataclass(frozen=True)
class MCBN(BatchNormMethod):
    """Monte Carlo Batch Normalization: sample the batch-norm statistics of real training batches, all layers together.

    Use it for any trained network with batch norm; it needs no retraining. `fit(model, train_data, likelihood)` runs
    `states` training batches once and returns a `BatchNormPosterior`; the model is not modified.

    Reference: Teye, Azizpour and Smith, "Bayesian uncertainty estimation for batch normalized deep networks",
    ICML 2018.

    Args:
        batch_size: Examples per batch, M. Use the batch size of training. Default: None, the batch size of a
            `DataLoader`.
        states: Number of batches whose statistics are kept. Default: 256.
        layers: Batch-norm layers to sample: names, a predicate `(name, module) -> bool`, or a number k for the last k
            layers in running order. What comes before the first of them runs once, not once per sample. Default: None,
            all layers.
        center: Sample around the network's running statistics ("running") or around the mean batch statistics
            ("batch", as published). Default: "running".
    """

    def distribution(self, deviations: Tensor) -> Empirical:
        return Empirical(deviations)
