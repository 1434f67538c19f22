"""Multiplicative normalising flows (Louizos and Welling, ICML 2017).

Weights are Gaussian, and their means are multiplied by a random vector z, with one entry per input unit of a linear
layer or per output filter of a convolution. z starts as a Gaussian and passes through masked RealNVP flows. So the
weights of a layer are correlated, and their distribution need not be Gaussian:

    z_0 ~ N(mu_z, s_z^2),   z = flow(z_0),   W = z M + sigma eps;     biases are Gaussian and independent.

The density of q(W) cannot be computed. An auxiliary distribution r(z | W) gives a bound,

    KL(q(W) || p(W))  <=  E_q[ KL(q(W | z) || p(W))  +  ln q(z)  -  ln r(z | W) ],
    ln q(z) = ln N(z_0; mu_z, s_z^2) - ln |det flow|,
    ln r(z | W) = ln N(flow_r(z); mu_r + a b_1, s_r^2 exp(a b_2)) + ln |det flow_r|,

where a is the mean over a layer's outputs of tanh(c^T W), without tanh for convolutions. Given z, c^T W is Gaussian and
is sampled directly. In training every example has its own z, and outputs are sampled as in `BayesByBackprop`. A sample
at prediction is one z and one W per layer, shared by all examples.

Notes:
- The bound, and so `posterior.kl` and `posterior.elbo`, is looser than the true divergence by the mismatch between
  r(z | W) and q(z | W).
- The mean and scale of r, mu_r and s_r, are not in the paper. Without them r(z | W) is wide if a is near 0, as a mean
  over many outputs is, and the bound is looser.
- The masks of the flows are sampled once, each followed by its complement. The paper samples them in every pass, which
  makes the density a mixture and the bound looser.
- Each layer has its own flows. In small layers they have most of the parameters and need most of the time.
- If a layer has one output, z cannot correlate weights. Training then reduces its variance to zero, and the result is
  `BayesByBackprop`.
- The prior is Gaussian, because only then the divergence given z has a closed form.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..arguments import require_whole
from ..errors import BayesNormError
from ..network import WeightTensor
from ..posterior import FlowWeights, GaussianWeights, WeightDistribution
from .variational import VariationalMethod


@dataclass(frozen=True)
class MNF(VariationalMethod):
    """Multiplicative normalising flows: learn correlated, non-Gaussian weights in linear and convolutional layers.

    Use it if independent Gaussian weights (`BayesByBackprop`) are too restrictive. It trains the network, so it is not
    post hoc. `fit(model, train_data, likelihood)` returns a posterior over weights.

    Reference: Louizos and Welling, "Multiplicative normalizing flows for variational Bayesian neural networks",
    ICML 2017.

    Args:
        epochs: Number of passes over the training data. Default: 100.
        batch_size: Examples per step. Default: None, the batch size of a `DataLoader`, or 32.
        learning_rate: Learning rate of Adam. Default: 0.001.
        schedule: "cosine" lowers the learning rate to zero along half a cosine, "constant" keeps it. Default: "cosine".
        prior: Standard deviation of every weight's Gaussian prior. Default: 1.
        prior_center: Centre of the prior: "zero", or the "trained" weights. Default: "zero".
        estimator: How weights are sampled in training, given z; see `BayesByBackprop`. Default: "local".
        start: Start from "fresh" weights, or from the "trained" weights. Default: "fresh".
        initial_std: Initial standard deviation of fresh weights. Default: 0.05.
        delta: Initial standard deviation of trained weights, relative to their magnitude. Default: 0.1.
        kl_warmup: Number of epochs in which the weight of the KL divergence rises to `kl_weight`. Default: 0.
        transform: Augmentation of every training batch's inputs, as in `training.train`. Default: None.
        compiled: Whether steps are compiled, or the mode, as in `training.train`. "graph" records a CUDA graph, which
            is the fastest mode for small networks. Default: False.
        mixed_precision: Whether to train in bfloat16 on GPUs that support it, as in `training.train`. It helps with
            large convolutions. Default: False.
        kl_weight: Weight of the KL divergence. Below 1 the data count more, as if there were more examples, and the
            epistemic uncertainty is smaller than the posterior's. Default: 1.
        flows: Number of steps of z's flow. Default: 2.
        auxiliary_flows: Number of steps of r's flow. Default: 2.
        hidden: Number of hidden units of each step. Default: 50.
    """

    flows: int = 2
    auxiliary_flows: int = 2
    hidden: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, tuple | list):
            raise BayesNormError(
                f"prior must be one standard deviation, because MNF has a Gaussian prior, got {self.prior!r}."
            )
        for name, least in (("flows", 0), ("auxiliary_flows", 0), ("hidden", 1)):
            require_whole(name, getattr(self, name), least)

    def distribution(self, tensor: WeightTensor, std: Tensor, center: Tensor | None) -> WeightDistribution:
        if tensor.is_bias:
            return GaussianWeights(tensor.parameter, std, tensor.axis, center)
        return FlowWeights(
            tensor.parameter,
            std,
            tensor.axis,
            center,
            flows=self.flows,
            auxiliary_flows=self.auxiliary_flows,
            hidden=self.hidden,
            squash=tensor.axis == 1,
        )
