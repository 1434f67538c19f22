"""Group normal-Jeffreys (Louizos, Ullrich and Welling, NeurIPS 2017): units that the data do not need become noise.

All weights from an input unit of a linear layer, and all to an output filter of a convolution, share a scale z:

    p(z) ~ 1 / |z|,  p(w | z) = N(0, z^2);     q(z) = N(mu_z, s_z^2),  q(w | z) = N(z mu, z^2 sigma^2).

The divergence is that of v = w / z, Gaussian from Gaussian, and with ln alpha = ln s_z^2 - ln mu_z^2 for every group

    KL(q(z) || p(z)) = k1 - k1 sigmoid(k2 + k3 ln alpha) + softplus(-ln alpha) / 2,   k = (.63576, 1.87320, 1.48695),

the approximation of Molchanov et al. (2017). Groups with a large alpha are noise; `bn.compress` removes them.

Gotchas:
- The prior is improper: `posterior.kl` and `posterior.elbo` are up to a constant.
- A prediction samples noise groups too, as the posterior says; a compressed network is that of the means without them.
- Biases are Gaussian outside of the groups. The authors multiply a filter's bias by its z as well.
- Batch norm divides the scale of a filter out again: what is pruned is a filter whose z changes its sign or size from
  draw to draw. Its scale and shift go with it, and statistics are then better estimated anew.
- Sparsity takes its time: z's deviation moves by about the learning rate per step. `kl_warmup` helps accuracy.
- In convolutions noise is drawn as by flipout, where the authors draw it independently for every pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..network import WeightTensor
from ..posterior import NormalJeffreysWeights
from .group_method import GroupMethod


@dataclass(frozen=True)
class GroupNormalJeffreys(GroupMethod):
    """Weights with a scale for every unit, under a prior that prefers none: Bayesian compression.

    Args:
        epochs: Passes over the training data.
        batch_size: Rows per step; None takes a `DataLoader`'s own, or 32.
        learning_rate: The step size of Adam.
        schedule: "cosine" lets the learning rate fall to zero along half a cosine; "constant" leaves it.
        prior: Standard deviation of v's prior, as a multiple of the size that a tensor's weights start with, and of
            that of biases.
        prior_center: "zero".
        estimator: How weights are drawn in training, given z; see `BayesByBackprop`.
        start: "fresh" weights, or the "trained" ones.
        initial_std: Standard deviation that fresh weights start with.
        delta: Standard deviation that trained weights start with, as a share of their size.
        kl_warmup: Epochs in which the divergence's weight rises to `kl_weight`.
        transform: What every batch's inputs go through in training, as in `training.train`: crops and mirror images.
        compiled: Whether steps are compiled, or the mode, as in `training.train`. "graph" records them on a GPU: for
            small networks by far the quickest.
        mixed_precision: Whether to train in bfloat16 where the network is on a GPU that has it, as in `training.train`:
            for large convolutions.
        kl_weight: What the divergence counts by. Below 1 the data say more, as if there were more rows, and more units
            are kept: for networks that lose too much accuracy.
    """

    def groups(self, tensor: WeightTensor, std: Tensor, unit: float) -> NormalJeffreysWeights:
        return NormalJeffreysWeights(tensor.parameter, std, tensor.axis, unit=unit)
