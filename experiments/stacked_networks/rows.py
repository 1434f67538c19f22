"""Rows of stacked networks, standardised by each network's own rows, and their targets in original units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from bayesnorm.tabular.stacked import Scales, StackedRows

# A column is constant up to rounding if its standard deviation is a smaller fraction of its mean.
CONSTANT = 1e-12


def standardised_rows(x: Tensor, y: Tensor, lists: Sequence[Tensor], scales: Scales | None = None) -> StackedRows:
    """Return the rows of one network for each list of row numbers.

    Args:
        x: All rows, (N, inputs).
        y: Their targets, (N,) or (N, targets).
        lists: The row numbers of each network.
        scales: What networks standardise with. None: means and standard deviations (ddof 0; 1 for constant columns) of
            each network's own rows.
    """
    y = y[:, None] if y.dim() == 1 else y
    return StackedRows.from_lists(x, y, lists, _own_scales(x, y, lists) if scales is None else scales)


def _own_scales(x: Tensor, y: Tensor, lists: Sequence[Tensor]) -> Scales:
    parts = []
    for values in (x, y):
        means, stds = [], []
        for rows in lists:
            std, mean = torch.std_mean(values.index_select(0, rows.to(values.device)).double(), dim=0, correction=0)
            means.append(mean)
            stds.append(torch.where(std > CONSTANT * mean.abs(), std, 1.0))
        parts += [torch.stack(means).to(values.dtype), torch.stack(stds).to(values.dtype)]
    return Scales(*parts)


def own_targets(rows: StackedRows) -> Tensor:
    """Return targets in their own units, (E, n, targets), padded with NaN, which predictives can ignore."""
    y = rows.y.index_select(0, rows.table.reshape(-1)).view(*rows.table.shape, -1)
    return torch.where(rows.mask.unsqueeze(-1), y, torch.nan)


def first_rows(rows: StackedRows, most: int) -> StackedRows:
    """Return at most the first so many rows of each network."""
    return replace(rows, table=rows.table[:, :most], lengths=rows.lengths.clamp_max(most))


def network_means(points: Tensor, seen: Tensor) -> Tensor:
    """Return the mean score of each network, (E,), over targets that are there, given scores (E, n, targets)."""
    there = seen.flatten(1)
    return torch.where(there, points.flatten(1), 0).sum(-1) / there.sum(-1)
