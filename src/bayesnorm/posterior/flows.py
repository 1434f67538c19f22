"""Masked RealNVP flows (Dinh et al., 2017, in the numerically stable form of Louizos and Welling, 2017).

One step transforms the entries outside its mask m, given those inside:

    h = tanh(A (m z) + a),   mu = B h + b,   g = sigmoid(C h + c),
    z' = m z + (1 - m) (g z + (1 - g) mu),   ln |det dz'/dz| = sum (1 - m) ln g.

Masks are sampled once, each entry with probability 1/2. Every second step has the complement of the previous mask, so
two steps transform every entry. c starts at 2, so g is about 0.88 and a step is near the identity.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

GATE_BIAS = 2.0
# Initial standard deviation of the weights for mu and g.
SMALL = 0.01


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
