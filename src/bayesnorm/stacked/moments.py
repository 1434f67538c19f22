"""Moments of what batch-norm layers get in training mode, of all networks of a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .architecture import Norm
from .draws import batches_of, per_network
from .passes import normalised, run, unchanged
from .rows import StackedRows
from .stack import Stack
from .train import batch_size_for

LEAST = 1e-12
"""Variance of a unit that is taken at least, in its own squared units."""


@dataclass(frozen=True, eq=False)
class UnitMoments:
    """Independent normal distributions of batch means and batch standard deviations, by the central limit theorem.

    mean_B has variance s^2 / M, and std_B mean s and variance (m4 - s^4) / (4 s^2 M).

    Args:
        mean_var: Variance of batch means, (E, C).
        std_loc: Expected batch standard deviations, (E, C).
        std_var: Their variance, (E, C).
    """

    mean_var: Tensor
    std_loc: Tensor
    std_var: Tensor


@torch.no_grad()
def unit_moments(
    stack: Stack, rows: StackedRows, batch_size: int, seed: int | Sequence[int] = 0, rows_seen: int = 8192
) -> UnitMoments:
    """Moments over some random batches of each network's training rows, at least four.

    Args:
        rows: The training rows.
        batch_size: M.
        seed: One for all networks, or one for each.
        rows_seen: How many rows the batches hold together, about.
    """
    rows = stack.placed(rows, "rows")
    batch_size = batch_size_for(batch_size, rows)
    batches = max(4, rows_seen // batch_size)
    picked, which = batches_of(per_network(seed, len(stack)), rows.lengths.tolist(), batch_size, batches)
    found = [_of_one(stack, rows, e, picked[which[e]].to(stack.device)) for e in range(len(stack))]
    var, square_var = (torch.cat(part) for part in zip(*found, strict=True))
    var = var.clamp_min(LEAST)
    return UnitMoments(
        var / batch_size,
        var.sqrt(),
        torch.maximum(square_var / (4 * var), 1e-6 * var) / batch_size,
    )


def _of_one(stack: Stack, rows: StackedRows, member: int, picked: Tensor) -> tuple[Tensor, Tensor]:
    """Variances of h and of (h - mean)^2 of one network's units over batches (B, M), (1, C) each."""
    members = slice(member, member + 1)
    own = rows.take(torch.tensor([member]))
    variances: list[Tensor] = []
    squares: list[Tensor] = []

    def normalise(layer: Norm, h: Tensor) -> Tensor:
        deviation = (h - h.mean((1, 2), keepdim=True)).double()
        var = deviation.square().mean((1, 2))
        variances.append(var)
        squares.append((deviation.pow(4).mean((1, 2)) - var.square()).clamp_min(0))
        mean = h.mean(2)
        inverse = torch.rsqrt((h - mean.unsqueeze(2)).square().mean(2) + layer.eps)
        return normalised(stack, members, layer, h, mean, inverse)

    x = own.inputs(own.table.gather(1, picked.flatten()[None]))
    run(stack, members, x.view(1, *picked.shape, -1), normalise, unchanged)
    return torch.cat(variances, 1), torch.cat(squares, 1)
