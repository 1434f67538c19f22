"""Multiplicative normalising flows (Louizos and Welling, ICML 2017).

Gaussian weights whose means are multiplied by a random vector z, one entry per input unit of a linear layer and per
output filter of a convolution. z starts as a Gaussian and goes through masked RealNVP flows, so that weights of a
layer are correlated and their distribution need not be Gaussian:

    z_0 ~ N(mu_z, s_z^2),   z = flow(z_0),   W = z M + sigma eps;     biases are Gaussian and independent.

q(W) has no density that could be computed; an auxiliary r(z | W) makes a bound of it,

    KL(q(W) || p(W))  <=  E_q[ KL(q(W | z) || p(W))  +  ln q(z)  -  ln r(z | W) ],
    ln q(z) = ln N(z_0; mu_z, s_z^2) - ln |det flow|,
    ln r(z | W) = ln N(flow_r(z); mu_r + a b_1, s_r^2 exp(a b_2)) + ln |det flow_r|,

where a is the mean over a layer's outputs of tanh(c^T W), for convolutions without tanh. c^T W is Gaussian given z and
drawn as such. In training every row has its own z, and outputs are drawn as in `BayesByBackprop`; a draw at prediction
is one z and one W per layer, shared by all rows.

Gotchas:
- The bound, and `posterior.kl` and `posterior.elbo` with it, is looser than the true divergence by as much as r(z | W)
  misses q(z | W).
- r's own mean and scale, mu_r and s_r, are not in the paper. Without them r(z | W) is wide wherever a is near 0, as a
  mean over many outputs is, and the bound pays for it.
- Masks of the flows are drawn once and kept, each followed by its complement; the paper samples them anew in every pass,
  which makes the density that of a mixture and the bound looser.
- Each layer has flows of its own: for small layers they are most of the parameters and most of the time.
- Where a layer has one output, z has nothing to share among weights; training lets its spread go to zero, and what
  remains is `BayesByBackprop`.
- The prior is a Gaussian: the divergence given z is closed only there.
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
    """Multiplicative normalising flows: correlated, non-Gaussian weights in linear and convolutional layers.

    Args:
        epochs: Passes over the training data.
        batch_size: Rows per step; None takes a `DataLoader`'s own, or 32.
        learning_rate: The step size of Adam.
        schedule: "cosine" lets the learning rate fall to zero along half a cosine; "constant" leaves it.
        prior: Standard deviation of every weight's Gaussian prior.
        prior_center: What the prior lies about: "zero", or the "trained" weights.
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
        kl_weight: What the divergence counts by. Below 1 the data say more, as if there were more rows, and uncertainty is
            less than that of a posterior.
        flows: Steps of z's flow.
        auxiliary_flows: Steps of r's flow.
        hidden: Units in the hidden layer of each step.
    """

    flows: int = 2
    auxiliary_flows: int = 2
    hidden: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, tuple | list):
            raise BayesNormError(
                f"prior: {self.prior!r} was given, and MNF's is a Gaussian; its standard deviation would work."
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
