"""A regulariser for exact variational training: the KL divergence of batch norm's q from a Gaussian prior.

Weight decay corresponds to one particular prior on batch statistics (`weight_decay_prior`). For any other Gaussian
prior, the divergence summed over all units is the regulariser Omega(theta) (Teye et al. 2018, appendix 1.4).

Notes:
- The moments of the current batch of size M stand in for those of the data. This makes s^2 too small by the factor
  1 - 1 / M, and (m_q - m_p)^2 too large by s^2 / M. Use ordinary training batch sizes, not a few examples.
- Only the latest forward pass counts. If a training step has several, compute Omega after each.
- With `SyncBatchNorm`, the moments are those of the examples in this process.
- Attach before `torch.compile`. Checkpointed layers need `use_reentrant=False`: with True they first run without
  gradients, so Omega has no gradient there.
"""

from __future__ import annotations

from typing import Self

from torch import Tensor, nn

from ..arguments import require_positive
from ..network import LayerChoice, MomentRecorder
from .priors import GaussianPrior, kl_divergence, require_prior
from .unit_gaussians import UnitGaussians, central_limit


class BatchNormKL:
    """The regulariser Omega(theta) = KL(q || prior) at the current batch, differentiable in the weights.

    Use it in any training loop. With the mean negative log likelihood per example and N training examples:

        with BatchNormKL(model, prior, batch_size=32) as omega:
            for x, y in loader:
                loss = nll(model(x), y) + omega() / N

    Gradients flow through the mean, the variance and the fourth moment of every unit. The hooks do not change what the
    network computes. The `with` block always removes them; `attach()` and `close()` do the same without a block.

    Args:
        model: The network in training.
        prior: The prior on the batch means and standard deviations of its units.
        batch_size: The batch size M of q: that of training, or any positive number.
        layers: Which batch-norm layers: names, a predicate, the last k in running order, or None for all.
    """

    def __init__(
        self, model: nn.Module, prior: GaussianPrior, batch_size: float, *, layers: LayerChoice = None
    ) -> None:
        self.prior = require_prior(prior)
        self.batch_size = require_positive("batch_size", batch_size)
        self._recorder = MomentRecorder(model, layers)

    def attach(self) -> Self:
        """Start recording the network's batches, and return this object."""
        self._recorder.attach()
        return self

    def close(self) -> None:
        """Remove every hook from the network."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def units(self) -> UnitGaussians:
        """Return q for the batch of the latest forward pass, as part of the autograd graph."""
        statistics = self._recorder.read()
        return central_limit(
            statistics.layers,
            statistics.mean,
            statistics.var,
            statistics.mean_var,
            statistics.square_var,
            self.batch_size,
        )

    def __call__(self) -> Tensor:
        """Return KL(q || prior), summed over all units."""
        return kl_divergence(self.units(), self.prior).sum()
