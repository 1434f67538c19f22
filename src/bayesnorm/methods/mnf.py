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
- Masks of the flows are drawn once and kept, each followed by its complement; the paper draws them anew in every pass,
  which makes the density that of a mixture and the bound looser.
- Each layer has flows of its own: for small layers they are most of the parameters and most of the time.
- Where a layer has one output, z has nothing to share among weights; training lets its spread go to zero, and what
  remains is `BayesByBackprop`.
- The prior is a Gaussian: the divergence given z is closed only there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import require_whole
from ..errors import BayesNormError
from ..network.variational import WeightTensor
from .flows import Flow
from .variational import VariationalMethod
from .weight_distributions import GaussianWeights, WeightDistribution, WeightPrior

Z_STD = 0.1
"""Standard deviation that z_0 starts with, about 1."""


class FlowWeights(WeightDistribution):
    """W = z M + softplus(rho) eps with z from a flow.

    Args:
        mean: M, the network's own parameter.
        std: The initial standard deviations of W given z.
        axis: Which axis of M z goes along.
        center: The prior's centre; None for zero.
        flows: Steps of z's flow.
        auxiliary_flows: Steps of r's flow.
        hidden: Units in the hidden layer of each step.
        squash: Whether r sees tanh(c^T W), or c^T W itself.
    """

    kind = "flow"

    def __init__(
        self,
        mean: nn.Parameter,
        std: Tensor,
        axis: int = 0,
        center: Tensor | None = None,
        *,
        flows: int,
        auxiliary_flows: int,
        hidden: int,
        squash: bool,
    ) -> None:
        super().__init__(mean, std, axis, center)
        self.flows, self.auxiliary_flows, self.hidden, self.squash = flows, auxiliary_flows, hidden, squash
        like = mean.detach().movedim(axis, 0).flatten(1)[:, 0]
        self.z_mean = nn.Parameter(torch.ones_like(like))
        self.z_log_std = nn.Parameter(torch.full_like(like, math.log(Z_STD)))
        self.flow = Flow(like, flows, hidden, shift=1.0)  # keeps z near 1 at the start
        self.auxiliary = Flow(like, auxiliary_flows, hidden, shift=1.0)
        self.r_mean = nn.Parameter(torch.ones_like(like))
        self.r_log_std = nn.Parameter(torch.full_like(like, math.log(Z_STD)))
        self.c, self.b_1, self.b_2 = (nn.Parameter(0.1 * torch.randn_like(like)) for _ in range(3))
        self._latest: tuple[Tensor, Tensor] | None = None

    def config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("flows", "auxiliary_flows", "hidden", "squash")}
        return super().config() | own

    def multipliers(self, n: int) -> Tensor:
        self._latest = self.draw_z(n)
        return self._latest[0]

    def draw_z(self, n: int) -> tuple[Tensor, Tensor]:
        """n draws of z, (n, channels), and ln q(z) of each, (n,)."""
        eps = torch.randn(n, len(self.z_mean), dtype=self.z_mean.dtype, device=self.z_mean.device)
        z, log_det = self.flow(self.z_mean + self.z_log_std.exp() * eps)
        return z, _log_normal(eps).sum(1) - self.z_log_std.sum() - log_det

    def kl(self, prior: WeightPrior, draws: int | None = None) -> Tensor:
        z, log_q = self._latest if draws is None and self._latest else self.draw_z(draws or 1)
        self._latest = None
        return (self.kl_given(z, prior) + log_q - self.log_r(z, self.draw_a(z))).mean()

    def kl_given(self, z: Tensor, prior: WeightPrior) -> Tensor:
        """KL(q(W | z) || p(W)) for every z, (n,)."""
        std = self.std
        mean = self._rows(self.mean)
        quadratic = z.square() @ mean.square().sum(1) + std.square().sum()
        if self.center is not None:
            center = self._rows(self.center)
            quadratic = quadratic - 2 * z @ (mean * center).sum(1) + center.square().sum()
        return quadratic / (2 * prior.std**2) - std.log().sum() + std.numel() * (math.log(prior.std) - 0.5)

    def draw_a(self, z: Tensor) -> Tensor:
        """What r sees of W, one draw of it given every z, (n, 1)."""
        projected = (z * self.c) @ self._rows(self.mean)
        std = (self.c.square() @ self._rows(self.std).square()).sqrt()
        projected = projected + std * torch.randn_like(projected)
        return (torch.tanh(projected) if self.squash else projected).mean(1, keepdim=True)

    def log_r(self, z: Tensor, a: Tensor) -> Tensor:
        """ln r(z | W) of every z, (n,)."""
        moved, log_det = self.auxiliary(z)
        log_std = self.r_log_std + 0.5 * a * self.b_2
        standard = (moved - self.r_mean - a * self.b_1) / log_std.exp()
        return (_log_normal(standard) - log_std).sum(1) + log_det

    def _rows(self, values: Tensor) -> Tensor:
        """A tensor of the weights' shape as a matrix with z's axis first."""
        return values.movedim(self.axis, 0).flatten(1)


@dataclass(frozen=True)
class MNF(VariationalMethod):
    """Multiplicative normalising flows: correlated, non-Gaussian weights in linear and convolutional layers.

    Args:
        epochs: Passes over the training data.
        batch_size: Rows per step; None takes a `DataLoader`'s own, or 32.
        learning_rate: Of Adam.
        schedule: "cosine" lets the learning rate fall to zero along half a cosine; "constant" leaves it.
        prior: Standard deviation of every weight's Gaussian prior.
        prior_center: What the prior lies about: "zero", or the "trained" weights.
        estimator: How weights are drawn in training, given z; see `BayesByBackprop`.
        start: "fresh" weights, or the "trained" ones.
        initial_std: Standard deviation that fresh weights start with.
        delta: Standard deviation that trained weights start with, as a share of their size.
        kl_warmup: Epochs in which the divergence's weight rises to 1.
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


def _log_normal(standard: Tensor) -> Tensor:
    return -0.5 * standard.square() - 0.5 * math.log(2 * math.pi)
