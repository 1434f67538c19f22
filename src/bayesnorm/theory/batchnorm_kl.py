"""A regulariser for exact variational training: the divergence of batch norm's own q from a prior of your choice.

Weight decay stands for one particular prior on batch statistics (`weight_decay_prior`). For any other Gaussian prior,
the divergence itself, evaluated on all units, is the regulariser Omega(theta) (Teye et al. 2018, appendix 1.4).

Gotchas:
- The moments of the batch at hand are taken for those of the data: s^2 comes out low by 1 / M of itself, and
  (m_q - m_p)^2 high by s^2 / M. Use the batch sizes of ordinary training, not a handful of rows.
- Only the latest forward counts. Where a step makes several, ask for Omega after each.
- With `SyncBatchNorm`, the moments are those of this process's own rows.
- Attach before `torch.compile`. Checkpointed layers need `use_reentrant=False`; the other kind runs them without
  gradients first, and Omega has none there.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from torch import Tensor, nn

from ..arguments import require_positive
from ..network import LayerChoice, MomentRecorder
from .priors import GaussianPrior, kl_divergence, require_prior
from .unit_gaussians import UnitGaussians, central_limit


class BatchNormKL:
    """The regulariser Omega(theta) = KL(q || prior) at the current batch, differentiable in the weights.

    It goes into any training loop; with the mean negative log likelihood per row and N training rows:

        with BatchNormKL(model, prior, batch_size=32) as omega:
            for x, y in loader:
                loss = nll(model(x), y) + omega() / N

    Gradients go through the mean, the variance and the fourth moment of every unit. The hooks only look on: what the
    network computes is the same with and without them. `attach()` and `close()` do what the `with` block does, which
    takes the hooks off in any case.

    Args:
        model: The network in training.
        prior: The prior on its units' batch means and standard deviations.
        batch_size: M of q: the training batch size, or any positive number.
        layers: Which batch-norm layers: names, a predicate, the last k as they run, or None for all.
    """

    def __init__(
        self, model: nn.Module, prior: GaussianPrior, batch_size: float, *, layers: LayerChoice = None
    ) -> None:
        self.prior = require_prior(prior)
        self.batch_size = require_positive("batch_size", batch_size)
        self._recorder = MomentRecorder(model, layers)

    def attach(self) -> Self:
        """Start to watch the network's batches."""
        self._recorder.attach()
        return self

    def close(self) -> None:
        """Take every hook off the network."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def units(self) -> UnitGaussians:
        """Return q at the batch of the latest forward, as part of the autograd graph."""
        found = self._recorder.read()
        return central_limit(found.layers, found.mean, found.var, found.mean_var, found.square_var, self.batch_size)

    def __call__(self) -> Tensor:
        """Return KL(q || prior), summed over all units."""
        return kl_divergence(self.units(), self.prior).sum()
