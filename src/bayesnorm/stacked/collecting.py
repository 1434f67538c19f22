"""Compute statistics of training batches, and moments of their rows, for all networks of a stack.

They have the form that methods are fitted with (`network.BatchStatistics`, `network.UnitMoments`), with an axis of
networks before that of channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ..arguments import require_seed, require_whole
from ..errors import BayesNormError, InputError, NetworkError
from ..network import BatchNormLayer, BatchStatistics, UnitMoments, batch_choices, mean_and_var, row_moments
from .architecture import Norm
from .cores import in_threads
from .fused.fused_passes import statistics as fused_statistics
from .passes import network_slices, normalised, piece_size, run_layers, unchanged
from .rows import StackedRows
from .stack import Stack

# Approximate number of rows in the batches for the moments.
ROWS_SEEN = 8192


@torch.no_grad()
def stacked_statistics(
    stack: Stack, rows: StackedRows, batch_size: int, states: int, seed: int | Sequence[int] = 0
) -> BatchStatistics:
    """Return the statistics of random mini-batches of each network's rows, all layers in one forward pass: (S, E, C).

    The batches equal those of a method's `fit` for one of the networks with the same seed.

    Args:
        stack: The networks.
        rows: Their training rows.
        batch_size: M, rows per batch.
        states: S, the number of batches.
        seed: One for all networks, or one for each.
    """
    batch_size = require_whole("batch_size", batch_size, 2, error=InputError)
    rows = _training_rows(stack, rows, batch_size)
    states = require_whole("states", states, 2, error=InputError)
    picked, which = _chosen_rows(per_network(seed, len(stack)), rows, batch_size, states)
    picked = picked.to(stack.device)
    found = fused_statistics(stack, rows, picked, which, batch_size)
    if found is None:
        parts = network_slices(stack, states * batch_size)
        pieces = in_threads(
            lambda part: _statistics_of(stack, part, rows, picked[which[part]], batch_size), parts, stack.device
        )
        means, variances = zip(*pieces, strict=True)
        found = torch.cat(means), torch.cat(variances)
    mean, var = (part.transpose(0, 1) for part in found)
    bad = ~(torch.isfinite(mean) & torch.isfinite(var))
    if bool(bad.any()):
        networks = bad.any(2).any(0).nonzero().flatten().tolist()
        raise NetworkError(f"stack: statistics of networks {networks[:8]} are NaN or infinite. Check their weights.")
    return _collected(stack, rows, mean, var, batch_size)


@torch.no_grad()
def stacked_moments(
    stack: Stack, rows: StackedRows, batch_size: int, seed: int | Sequence[int] = 0, rows_seen: int = ROWS_SEEN
) -> UnitMoments:
    """Return the moments of single rows in at least four random batches of each network's rows: (1, E, C).

    Args:
        stack: The networks.
        rows: Their training rows.
        batch_size: M, rows per batch; earlier layers normalise by the batch.
        seed: One for all networks, or one for each.
        rows_seen: Approximate number of rows in all batches together.
    """
    batch_size = require_whole("batch_size", batch_size, 2, error=InputError)
    rows = _training_rows(stack, rows, batch_size)
    batches = max(4, require_whole("rows_seen", rows_seen, error=InputError) // batch_size)
    picked, which = _chosen_rows(per_network(seed, len(stack)), rows, batch_size, batches)
    found = [_moments_of(stack, rows, e, picked[which[e]].to(stack.device)) for e in range(len(stack))]
    mean, var, mean_var, square_var = (torch.cat(part) for part in zip(*found, strict=True))
    statistics = _collected(stack, rows, mean[None], var[None], batch_size)
    return UnitMoments(statistics, mean_var.sqrt(), square_var.sqrt())


def per_network(seed: int | Sequence[int], networks: int) -> list[int]:
    """Return a seed for every network."""
    try:
        given = [*seed]  # type: ignore[misc]
    except TypeError:  # one number; a tensor with one number is refused, as everywhere
        return [require_seed(seed)] * networks
    if len(given) != networks:
        raise BayesNormError(
            f"seed has {len(given)} entries for {networks} networks. Pass one seed, or one per network."
        )
    return [require_seed(each.item() if isinstance(each, Tensor) else each) for each in given]


def _training_rows(stack: Stack, rows: StackedRows, batch_size: int) -> StackedRows:
    """Return rows on the stack's device; refuse rows that give no different batches."""
    if not stack.norms:
        raise NetworkError(
            "stack: its networks have no batch norm, so there are no batch statistics. Use networks with "
            "nn.BatchNorm1d."
        )
    rows = stack.placed(rows, "rows")
    least = int(rows.lengths.min())
    if batch_size >= least:
        raise InputError(
            f"batch_size={batch_size}, but a network has only {least} training rows. Every batch would contain the "
            f"same rows, so all samples would be equal. Use at most {least - 1}."
        )
    return rows


def _collected(stack: Stack, rows: StackedRows, mean: Tensor, var: Tensor, batch_size: int) -> BatchStatistics:
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


def _chosen_rows(seeds: list[int], rows: StackedRows, batch_size: int, count: int) -> tuple[Tensor, Tensor]:
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
    size = max(1, piece_size(stack) // (len(picked) * batch_size * max(stack.widths))) * batch_size
    found: list[tuple[Tensor, Tensor]] = []
    for part in numbers.split(size, 1):
        statistics: list[tuple[Tensor, Tensor]] = []

        def normalise(layer: Norm, h: Tensor, kept: list[tuple[Tensor, Tensor]] = statistics) -> Tensor:
            mean, var = mean_and_var(h, leading=2)
            kept.append((mean, var))
            return normalised(stack, members, layer, h, mean, torch.rsqrt(var + layer.eps))

        x = chosen.inputs(part)
        run_layers(stack, members, x.view(len(picked), -1, batch_size, x.shape[-1]), normalise, unchanged)
        means, variances = zip(*statistics, strict=True)
        found.append((torch.cat(means, 2), torch.cat(variances, 2)))
    means, variances = zip(*found, strict=True)
    return torch.cat(means, 1), torch.cat(variances, 1)


def _moments_of(stack: Stack, rows: StackedRows, member: int, picked: Tensor) -> tuple[Tensor, ...]:
    """Return moments of one network's units over the rows of batches (B, M): (1, C) each, as in `Moments`."""
    members = slice(member, member + 1)
    own = rows.take(torch.tensor([member]))
    found: list[tuple[Tensor, ...]] = []

    def normalise(layer: Norm, h: Tensor) -> Tensor:
        found.append(tuple(row_moments(h.flatten(1, 2).double(), leading=1)))
        mean, var = mean_and_var(h, leading=2)
        return normalised(stack, members, layer, h, mean, torch.rsqrt(var + layer.eps))

    x = own.inputs(own.table.gather(1, picked.flatten()[None]))
    run_layers(stack, members, x.view(1, *picked.shape, -1), normalise, unchanged)
    return tuple(torch.cat(part, 1).to(stack.dtype) for part in zip(*found, strict=True))
