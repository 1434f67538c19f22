"""Weights of a multiplicative normalising flow (Louizos and Welling, 2017); `methods/mnf.py` has the formulas.

Masked RealNVP flows (Dinh et al., 2017, in the numerically stable form of Louizos and Welling, 2017).

One step transforms the entries outside its mask m, given those inside:

    h = tanh(A (m z) + a),   mu = B h + b,   g = sigmoid(C h + c),
    z' = m z + (1 - m) (g z + (1 - g) mu),   ln |det dz'/dz| = sum (1 - m) ln g.

Masks are sampled once, each entry with probability 1/2. Every second step has the complement of the previous mask, so
two steps transform every entry. c starts at 2, so g is about 0.88 and a step is near the identity.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..schema import Array, flag, record, text, whole
from .weight_distributions import WeightDistribution, WeightPrior

# Initial standard deviation of z_0 around 1.
Z_STD = 0.1
# Initial bias of a step's gate.
GATE_BIAS = 2.0
# Initial standard deviation of the weights for mu and g.
SMALL = 0.01


class FlowWeights(WeightDistribution):
    """W = z M + softplus(rho) eps, with z from a flow.

    Args:
        mean: M, the network's parameter.
        std: Initial standard deviations of W given z.
        axis: The axis of M that z belongs to.
        center: Centre of the prior; None for zero.
        flows: Number of steps of z's flow.
        auxiliary_flows: Number of steps of r's flow.
        hidden: Number of hidden units of each step.
        squash: Whether r depends on tanh(c^T W), or on c^T W itself.
    """

    kind = "flow"
    schema = record(kind=text, axis=whole(), flows=whole(), auxiliary_flows=whole(), hidden=whole(1), squash=flag)

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
        sizes = {name: getattr(self, name) for name in ("flows", "auxiliary_flows", "hidden", "squash")}
        return super().config() | sizes

    @classmethod
    def arrays(cls, shape: tuple[int, ...], config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Array]:
        size, hidden = shape[config["axis"]], config["hidden"]
        arrays = super().arrays(shape, config, tensors)
        arrays |= {name: Array((size,)) for name in ("z_mean", "z_log_std", "r_mean", "r_log_std", "c", "b_1", "b_2")}
        for flow, steps in (("flow", config["flows"]), ("auxiliary", config["auxiliary_flows"])):
            whole(0, len(tensors))(steps, f"posterior.weights' steps of {flow}")  # each of which has tensors
            for name in (f"{flow}.steps.{step}" for step in range(steps)):
                arrays[f"{name}.mask"] = Array((size,), least=0.0)
                arrays |= {f"{name}.inner.weight": Array((hidden, size)), f"{name}.inner.bias": Array((hidden,))}
                arrays |= {f"{name}.outer.weight": Array((2 * size, hidden)), f"{name}.outer.bias": Array((2 * size,))}
        return arrays

    def multipliers(self, n: int) -> Tensor:
        self._latest = self.sample_z(n)
        return self._latest[0]

    def sample_z(self, n: int) -> tuple[Tensor, Tensor]:
        """Return n samples of z, (n, channels), and ln q(z) of each, (n,)."""
        eps = torch.randn(n, len(self.z_mean), dtype=self.z_mean.dtype, device=self.z_mean.device)
        z, log_det = self.flow(self.z_mean + self.z_log_std.exp() * eps)
        return z, _log_normal(eps).sum(1) - self.z_log_std.sum() - log_det

    def kl(self, prior: WeightPrior, samples: int | None = None) -> Tensor:
        z, log_q = self._latest if samples is None and self._latest else self.sample_z(samples or 1)
        self._latest = None
        return (self.kl_given(z, prior) + log_q - self.log_r(z, self.sample_a(z))).mean()

    def kl_given(self, z: Tensor, prior: WeightPrior) -> Tensor:
        """Return KL(q(W | z) || p(W)) for every z, (n,)."""
        std = self.std
        mean = self._rows(self.mean)
        quadratic = z.square() @ mean.square().sum(1) + std.square().sum()
        if self.center is not None:
            center = self._rows(self.center)
            quadratic = quadratic - 2 * z @ (mean * center).sum(1) + center.square().sum()
        return quadratic / (2 * prior.std**2) - std.log().sum() + std.numel() * (math.log(prior.std) - 0.5)

    def sample_a(self, z: Tensor) -> Tensor:
        """Return one sample of r's input from W for every z, (n, 1)."""
        projected = (z * self.c) @ self._rows(self.mean)
        std = (self.c.square() @ self._rows(self.std).square()).sqrt()
        projected = projected + std * torch.randn_like(projected)
        return (torch.tanh(projected) if self.squash else projected).mean(1, keepdim=True)

    def log_r(self, z: Tensor, a: Tensor) -> Tensor:
        """Return ln r(z | W) for every z, (n,)."""
        moved, log_det = self.auxiliary(z)
        log_std = self.r_log_std + 0.5 * a * self.b_2
        standard = (moved - self.r_mean - a * self.b_1) / log_std.exp()
        return (_log_normal(standard) - log_std).sum(1) + log_det

    def _rows(self, values: Tensor) -> Tensor:
        """Return a tensor of the weights' shape as a matrix with z's axis first."""
        return values.movedim(self.axis, 0).flatten(1)


class MaskedStep(nn.Module):
    """One step; see the module's docstring.

    Args:
        mask: 1 for entries that stay, 0 for those that are transformed, (size,).
        hidden: Number of entries of h.
        shift: Initial value of mu.
    """

    mask: Tensor

    def __init__(self, mask: Tensor, hidden: int, shift: float = 0.0) -> None:
        super().__init__()
        size, like = len(mask), {"dtype": mask.dtype, "device": mask.device}
        self.register_buffer("mask", mask)
        self.inner = nn.Linear(size, hidden, **like)  # type: ignore[arg-type]
        self.outer = nn.Linear(hidden, 2 * size, **like)  # type: ignore[arg-type]
        nn.init.normal_(self.outer.weight, std=SMALL)
        with torch.no_grad():
            self.outer.bias[:size] = shift
            self.outer.bias[size:] = GATE_BIAS

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transformed z, (n, size), and ln |det| of each row, (n,)."""
        mu, gate = self.outer(torch.tanh(self.inner(self.mask * z))).chunk(2, dim=-1)
        log_g = functional.logsigmoid(gate) * (1 - self.mask)  # inside the mask g = 1
        return torch.lerp(mu, z, log_g.exp()), log_g.sum(-1)


class Flow(nn.Module):
    """Several steps, one after the other.

    Args:
        like: A tensor in the dtype and on the device of the flow, (size,).
        steps: Number of steps.
        hidden: Number of hidden units of each step.
        shift: Initial value of mu.
    """

    def __init__(self, like: Tensor, steps: int, hidden: int, shift: float = 0.0) -> None:
        super().__init__()
        mask, made = torch.empty_like(like), []
        for step in range(steps):
            mask = 1 - mask if step % 2 else torch.bernoulli(torch.full_like(like, 0.5))
            made.append(MaskedStep(mask, hidden, shift))
        self.steps = nn.ModuleList(made)

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the transformed z, (n, size), and ln |det| of each row, (n,)."""
        total = torch.zeros_like(z[:, 0])
        for step in self.steps:
            z, log_det = step(z)
            total = total + log_det
        return z, total


def _log_normal(standard: Tensor) -> Tensor:
    return -0.5 * standard.square() - 0.5 * math.log(2 * math.pi)
