"""Statistics of training batches, by a GPU kernel if it supports the networks, and moments of single rows."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesnorm.network import BatchStatistics, UnitMoments, mean_and_var, row_moments
from bayesnorm.tabular.stacked import (
    Norm,
    Stack,
    StackedRows,
    as_batch_statistics,
    batch_rows,
    normalised,
    run_layers,
    stacked_statistics,
    without_dropout,
)

from .fused.fused_passes import statistics as fused_statistics

# Approximate number of rows in the batches for the moments.
ROWS_SEEN = 8192


@torch.no_grad()
def batch_statistics(stack: Stack, rows: StackedRows, batch_size: int, states: int, seed: int = 0) -> BatchStatistics:
    """Return what `stacked_statistics` returns, by a GPU kernel if it supports the networks."""
    rows, seeds = rows.to(stack.device, stack.dtype), [seed] * len(stack)
    picked, which = batch_rows(seeds, rows, batch_size, states)
    parts = fused_statistics(stack, rows, picked.to(stack.device), which, batch_size)
    if parts is None:
        return stacked_statistics(stack, rows, batch_size, states, seeds)
    mean, var = (part.transpose(0, 1) for part in parts)
    return as_batch_statistics(stack, rows, mean, var, batch_size)


@torch.no_grad()
def stacked_moments(
    stack: Stack, rows: StackedRows, batch_size: int, seed: int = 0, rows_seen: int = ROWS_SEEN
) -> UnitMoments:
    """Return the moments of single rows in at least four random batches of each network's rows: (1, E, C).

    Args:
        stack: The networks.
        rows: Their training rows.
        batch_size: M, rows per batch; earlier layers normalise by the batch.
        seed: Determines the batches.
        rows_seen: Approximate number of rows in all batches together.
    """
    rows = rows.to(stack.device, stack.dtype)
    picked, which = batch_rows([seed] * len(stack), rows, batch_size, max(4, rows_seen // batch_size))
    parts = [_moments_of(stack, rows, e, picked[which[e]].to(stack.device)) for e in range(len(stack))]
    mean, var, mean_var, square_var = (torch.cat(part) for part in zip(*parts, strict=True))
    statistics = as_batch_statistics(stack, rows, mean[None], var[None], batch_size)
    return UnitMoments(statistics, mean_var.sqrt(), square_var.sqrt())


def _moments_of(stack: Stack, rows: StackedRows, member: int, picked: Tensor) -> tuple[Tensor, ...]:
    """Return moments of one network's units over the rows of batches (B, M): (1, C) each, as in `Moments`."""
    members = slice(member, member + 1)
    member_rows = rows.take(torch.tensor([member]))
    layers: list[tuple[Tensor, ...]] = []

    def normalise(layer: Norm, h: Tensor) -> Tensor:
        layers.append(tuple(row_moments(h.flatten(1, 2).double(), leading=1)))
        mean, var = mean_and_var(h, leading=2)
        return normalised(stack, members, layer, h, mean, torch.rsqrt(var + layer.eps))

    x = member_rows.inputs(member_rows.table.gather(1, picked.flatten()[None]))
    run_layers(stack, members, x.view(1, *picked.shape, -1), normalise, without_dropout)
    return tuple(torch.cat(part, 1).to(stack.dtype) for part in zip(*layers, strict=True))
