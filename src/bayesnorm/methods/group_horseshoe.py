"""Group horseshoe (Louizos, Ullrich and Welling, NeurIPS 2017): units shrink to nothing, or stay as they are.

Groups are those of `GroupNormalJeffreys`; their scales have half-Cauchy priors, one of the group's own and one that a
layer shares:

    z_i = s t_i,   s ~ C+(0, t_0),   t_i ~ C+(0, 1),   w | z ~ N(0, z^2).

A half-Cauchy's square is the product of a Gamma and an inverse Gamma, s^2 = s_a s_b and t_i^2 = a_i b_i, each of which
has a log-normal q with mean m and deviation s of its logarithm. Then z is log-normal too, and divergences are closed:

    KL(s_a) = ln t_0 + exp(m + s^2 / 2) / t_0^2 - (m + ln s^2 + 1 + ln 2) / 2,      a_i likewise with t_0 = 1,
    KL(s_b) = exp(-m + s^2 / 2) - (-m + ln s^2 + 1 + ln 2) / 2,                     b_i likewise.

A group is as good as gone where the mode of its z is near 0; `bn.compress` removes such groups.

Gotchas: those of `GroupNormalJeffreys`, but this prior is proper, and so are `posterior.kl` and `posterior.elbo`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..arguments import require_positive
from ..network import WeightTensor
from ..posterior import HorseshoeWeights
from .group_method import GroupMethod


@dataclass(frozen=True)
class GroupHorseshoe(GroupMethod):
    """Weights with a half-Cauchy scale for every unit and every layer: Bayesian compression.

    Args:
        epochs: Passes over the training data.
        batch_size: Rows per step; None takes a `DataLoader`'s own, or 32.
        learning_rate: The step size of Adam.
        schedule: "cosine" lets the learning rate fall to zero along half a cosine; "constant" leaves it.
        prior: Standard deviation of w / z under the prior, as a multiple of the size that a tensor's weights start
            with, and of biases.
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
        global_scale: t_0: the smaller, the fewer units are kept.
    """

    global_scale: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("global_scale", self.global_scale)

    def groups(self, tensor: WeightTensor, std: Tensor, unit: float) -> HorseshoeWeights:
        return HorseshoeWeights(tensor.parameter, std, tensor.axis, unit=unit, global_scale=self.global_scale)
