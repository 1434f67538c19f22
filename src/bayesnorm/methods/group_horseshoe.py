"""Group horseshoe (Louizos, Ullrich and Welling, NeurIPS 2017): units shrink to zero, or stay unchanged.

Groups are those of `GroupNormalJeffreys`. Their scales have half-Cauchy priors, one per group and one per layer:

    z_i = s t_i,   s ~ C+(0, t_0),   t_i ~ C+(0, 1),   w | z ~ N(0, z^2).

The square of a half-Cauchy variable is the product of a Gamma and an inverse Gamma variable, s^2 = s_a s_b and
t_i^2 = a_i b_i. Each has a log-normal q, whose logarithm has mean m and standard deviation s. Then z is log-normal too,
and the KL divergences have closed forms:

    KL(s_a) = ln t_0 + exp(m + s^2 / 2) / t_0^2 - (m + ln s^2 + 1 + ln 2) / 2,      a_i likewise with t_0 = 1,
    KL(s_b) = exp(-m + s^2 / 2) - (-m + ln s^2 + 1 + ln 2) / 2,                     b_i likewise.

A group can be removed if the mode of its z is near 0; `bn.compress` does that.

Notes: those of `GroupNormalJeffreys` apply, but this prior is proper, and so are `posterior.kl` and `posterior.elbo`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..arguments import require_positive
from ..network import WeightTensor
from ..posterior import HorseshoeWeights
from .variational import GroupMethod


@dataclass(frozen=True)
class GroupHorseshoe(GroupMethod):
    """Bayesian compression: learn weights under a sparse prior, with a half-Cauchy scale for every unit and layer.

    Use it to prune a network: after `fit(model, train_data, likelihood)`, `bn.compress(posterior)` removes units that
    are shrunk to zero. `fit` trains the network and returns a posterior over weights.

    Reference: Louizos, Ullrich and Welling, "Bayesian compression for deep learning", NeurIPS 2017.

    Args:
        epochs: Number of passes over the training data. Default: 100.
        batch_size: Examples per step. Default: None, the batch size of a `DataLoader`, or 32.
        learning_rate: Learning rate of Adam. Default: 0.001.
        schedule: "cosine" lowers the learning rate to zero along half a cosine, "constant" keeps it. Default: "cosine".
        prior: Prior standard deviation of w / z and of biases, as a multiple of the initial weights' magnitude.
            Default: 1.
        prior_center: Only "zero".
        estimator: How weights are sampled in training, given z; see `BayesByBackprop`. Default: "local".
        start: Start from "fresh" weights, or from the "trained" weights. Default: "fresh".
        initial_std: Initial standard deviation of fresh weights. Default: 0.01.
        delta: Initial standard deviation of trained weights, relative to their magnitude. Default: 0.1.
        kl_warmup: Number of epochs in which the weight of the KL divergence rises to `kl_weight`. Default: 0.
        transform: Augmentation of every training batch's inputs, as in `training.train`. Default: None.
        compiled: Whether steps are compiled, or the mode, as in `training.train`. "graph" records a CUDA graph, which
            is the fastest mode for small networks. Default: False.
        mixed_precision: Whether to train in bfloat16 on GPUs that support it, as in `training.train`. It helps with
            large convolutions. Default: False.
        kl_weight: Weight of the KL divergence. Below 1 the data count more, as if there were more examples, and more
            units are kept. Lower it if compression costs too much accuracy. Default: 1.
        global_scale: Scale t_0 of the prior. Smaller values remove more units. Default: 1e-5.
    """

    global_scale: float = 1e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("global_scale", self.global_scale)

    def groups(self, tensor: WeightTensor, std: Tensor, unit: float) -> HorseshoeWeights:
        return HorseshoeWeights(tensor.parameter, std, tensor.axis, unit=unit, global_scale=self.global_scale)
