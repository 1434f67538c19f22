"""Compute statistics of training batches for all networks of a stack.

They have the form that methods are fitted with (`network.BatchStatistics`), with an axis of networks before that of
channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ...network import BatchNormLayer, BatchStatistics, batch_choices, mean_and_var
from .architecture import Norm
from .passes import block_numbers, network_slices, normalised, run_layers, without_dropout
from .rows import StackedRows
from .stack import Stack
from .threads import in_threads


@torch.no_grad()
def stacked_statistics(
    stack: Stack, rows: StackedRows, batch_size: int, states: int, seeds: Sequence[int]
) -> BatchStatistics:
    """Return the statistics of random mini-batches of each network's rows, all layers in one forward pass: (S, E, C).

    The batches equal those of a method's `fit` for one of the networks with the same seed.

    Args:
        stack: The networks.
        rows: Their training rows.
        batch_size: M, rows per batch; less than the rows of any network.
        states: S, the number of batches.
        seeds: The seed of each network.
    """
    rows = rows.to(stack.device, stack.dtype)
    picked, which = batch_rows(seeds, rows, batch_size, states)
    picked = picked.to(stack.device)
    parts = in_threads(
        lambda part: _statistics_of(stack, part, rows, picked[which[part]], batch_size),
        network_slices(stack, states * batch_size),
        stack.device,
    )
    mean, var = (torch.cat(part).transpose(0, 1) for part in zip(*parts, strict=True))
    return as_batch_statistics(stack, rows, mean, var, batch_size)


def as_batch_statistics(stack: Stack, rows: StackedRows, mean: Tensor, var: Tensor, batch_size: int) -> BatchStatistics:
    """Return means and variances of batches, (S, E, C), with what methods need to know of the networks."""
    running_mean, running_var = (
        torch.cat([stack.buffers[f"{norm.name}.running_{part}"] for norm in stack.norms], 1) for part in ("mean", "var")
    )
    return BatchStatistics(
        layers=tuple(BatchNormLayer(norm.name, norm.channels, norm.eps) for norm in stack.norms),
        mean=mean,
        var=var,
        running_mean=running_mean,
        running_var=running_var,
        batch_size=batch_size,
        rows=int(rows.lengths.min()),
        example=rows.x[:0],
    )


def batch_rows(seeds: Sequence[int], rows: StackedRows, batch_size: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the different choices of batches, (U, count, batch_size), and the choice of each network, (E,)."""
    keys = list(zip(seeds, rows.lengths.tolist(), strict=True))
    different = list(dict.fromkeys(keys))
    place = {key: i for i, key in enumerate(different)}
    return _choices(tuple(different), batch_size, count), torch.tensor([place[key] for key in keys])


@lru_cache(maxsize=8)
def _choices(keys: tuple[tuple[int, int], ...], batch_size: int, count: int) -> Tensor:
    """Return cached choices: networks in training need statistics of the same batches many times."""
    return torch.from_numpy(np.stack([batch_choices(rows, batch_size, count, seed) for seed, rows in keys]))


@torch.no_grad()
def _statistics_of(
    stack: Stack, members: slice, rows: StackedRows, picked: Tensor, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Return means and biased variances of batches of rows picked (networks, S, M), each (networks, S, C)."""
    chosen = rows.take(torch.arange(members.start, members.stop))
    numbers = chosen.table.gather(1, picked.flatten(1))
    size = max(1, block_numbers(stack) // (len(picked) * batch_size * max(stack.widths))) * batch_size
    blocks: list[tuple[Tensor, Tensor]] = []
    for part in numbers.split(size, 1):
        statistics: list[tuple[Tensor, Tensor]] = []

        def normalise(layer: Norm, h: Tensor, statistics: list[tuple[Tensor, Tensor]] = statistics) -> Tensor:
            mean, var = mean_and_var(h, leading=2)
            statistics.append((mean, var))
            return normalised(stack, members, layer, h, mean, torch.rsqrt(var + layer.eps))

        x = chosen.inputs(part)
        run_layers(stack, members, x.view(len(picked), -1, batch_size, x.shape[-1]), normalise, without_dropout)
        means, variances = zip(*statistics, strict=True)
        blocks.append((torch.cat(means, 2), torch.cat(variances, 2)))
    means, variances = zip(*blocks, strict=True)
    return torch.cat(means, 1), torch.cat(variances, 1)
