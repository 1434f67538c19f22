"""Group normal-Jeffreys (Louizos, Ullrich and Welling, NeurIPS 2017): units that the data do not need become noise.

All weights from an input unit of a linear layer, and all weights to an output filter of a convolution, share a scale z:

    p(z) ~ 1 / |z|,  p(w | z) = N(0, z^2);     q(z) = N(mu_z, s_z^2),  q(w | z) = N(z mu, z^2 sigma^2).

The KL divergence is that of v = w / z, a Gaussian from a Gaussian. In addition, every group has, with
ln alpha = ln s_z^2 - ln mu_z^2,

    KL(q(z) || p(z)) = k1 - k1 sigmoid(k2 + k3 ln alpha) + softplus(-ln alpha) / 2,   k = (0.63576, 1.87320, 1.48695),

the approximation of Molchanov et al. (2017). Groups with a large alpha are noise; `bn.compress` removes them.

Notes:
- The prior is improper, so `posterior.kl` and `posterior.elbo` are known up to a constant.
- A prediction also samples groups that are noise. A compressed network has the mean weights without these groups.
- Biases are Gaussian and not part of the groups. The authors also multiply a filter's bias by its z.
- Batch norm cancels the scale of a filter. A filter is pruned if its z changes sign or size from sample to sample. Its
  batch-norm scale and shift are removed too, and the statistics should then be estimated again.
- Sparsity needs time: the standard deviation of z changes by about the learning rate per step. `kl_warmup` helps
  accuracy.
- In convolutions, noise is sampled by flipout. The authors sample it independently for every pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..network import WeightTensor
from ..posterior import NormalJeffreysWeights
from .variational import GroupMethod


@dataclass(frozen=True)
class GroupNormalJeffreys(GroupMethod):
    """Bayesian compression: learn weights with one scale per unit, under a prior that prefers scales of zero.

    Use it to prune a network: after `fit(model, train_data, likelihood)`, `bn.compress(posterior)` removes units that
    have become noise. `fit` trains the network and returns a posterior over weights.

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
    """

    def groups(self, tensor: WeightTensor, std: Tensor, unit: float) -> NormalJeffreysWeights:
        return NormalJeffreysWeights(tensor.parameter, std, tensor.axis, unit=unit)
