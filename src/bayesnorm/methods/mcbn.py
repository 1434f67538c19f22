"""Monte Carlo Batch Normalization (Teye, Azizpour and Smith, ICML 2018).

Training with batch norm draws, at every step, the statistics w = (mean_B, var_B) of a random mini-batch B. MCBN takes
that for a draw from an approximate posterior q(w) and predicts with

    p(y | x)  ~  1/T  sum_t  p(y | f(x; w_t)),     w_t = statistics of the t-th random training mini-batch,

all layers of a draw from one pass over one batch. The predictive covariance is the spread of f plus 1/precision.

Gotchas:
- `batch_size` is the batch size that the network was trained with, unless you mean to change the doubt: the spread
  falls as 1/M. `posterior.at_batch_size` changes it afterwards.
- As published (`center="batch"`) draws lie about the mean *batch* statistics, which are not the running statistics that
  the deployed network uses: the mean prediction moves and accuracy can fall. `center="running"`, the default, keeps the
  network's own statistics as the centre and adds only the batches' deviations from their mean.
- `states` bounds how many distinct draws there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from ..batchnorm_posterior import BatchNormPosterior, Center, batchnorm_posterior, coordinates
from ..fluctuations import Empirical
from ..likelihoods import Likelihood
from ..network import LayerChoice, Progress, TrainData
from .batchnorm_fit import collect, require_center, require_states


@dataclass(frozen=True)
class MCBN:
    """Monte Carlo Batch Normalization: draws are the statistics of real training batches.

    Args:
        batch_size: M, rows per batch; None takes a `DataLoader`'s own.
        states: S, how many batches' statistics are kept.
        layers: Which batch-norm layers are drawn: names, a predicate `(name, module) -> bool`, the last k as they run,
            or None for all. What comes before the first of them is computed once, not once per draw.
        center: "running" (draws about the network's own running statistics) or "batch" (as published).
    """

    batch_size: int | None = None
    states: int = 256
    layers: LayerChoice = None
    center: Center = "running"

    def __post_init__(self) -> None:
        require_center(self.center)
        require_states(self.states, least=1 if self.center == "batch" else 2)

    def fit(
        self,
        model: nn.Module,
        train_data: TrainData,
        likelihood: Likelihood | None = None,
        *,
        output: str | int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> BatchNormPosterior:
        """Collect the statistics of `states` training batches.

        Args:
            model: The trained network; never modified.
            train_data: The rows that it was trained on: a `DataLoader`, a `Dataset`, a tensor, an array or a pair.
            likelihood: How outputs become distributions of targets; None means `Gaussian()` for a network with one
                real output, and classification wants `Categorical()`.
            output: Which entry to use where the network returns a dict or a tuple.
            seed: Same seed, same batches.
            progress: Called with (done, total) after every batch.
        """
        fitted = collect(
            model, train_data, likelihood, output, self.batch_size, self.states, self.layers, seed, progress
        )
        batches = coordinates(fitted.statistics.mean, fitted.statistics.var, fitted.statistics.layers)
        batch_mean = batches.double().mean(0).to(batches.dtype)
        return batchnorm_posterior(
            method="MCBN",
            executable=fitted.executable,
            likelihood=fitted.likelihood,
            center=self.center,
            statistics=fitted.statistics,
            batch_mean=batch_mean,
            fluctuations=Empirical(batches - batch_mean),
        )
