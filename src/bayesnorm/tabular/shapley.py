"""Shapley values: what each column adds where a row takes the place of a baseline row, column by column.

In what order columns are exchanged matters as soon as they work together, so that a column's share is the mean of what
it adds over all orders (Shapley 1953). Of few columns all subsets are tried, which is exact; of many, orders are drawn
(Strumbelj and Kononenko 2014), each with its reverse (Mitchell et al. 2022), which takes away most of the noise. Either
way the shares are one linear map of values at rows of which some columns are exchanged: no gradient is asked for, and

- they sum to the value at the row minus that at the baseline, for any number of orders;
- a column that changes no value gets 0, also one that holds what the baseline holds;
- two columns that do the same get the same; over drawn orders, but for the noise of drawing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .column_types import Numbers

Masks = NDArray[np.bool_]

# Rows that are predicted at a time: samples of more no longer fit into the processor's cache.
BLOCK = 2_000

# Values that are kept at a time.
MOST_VALUES = 2**18


@dataclass(frozen=True)
class Exchanges:
    """Which columns are exchanged together, and how much the value then counts for each column.

    Args:
        masks: One row for each set of columns that are taken from the row, (sets, columns); the first has none.
        weights: What the value of each set is multiplied with in the share of each column, (sets, columns).
    """

    masks: Masks
    weights: Numbers

    @classmethod
    def of(cls, columns: int, pairs: int, seed: int) -> Self:
        """Return all sets of columns where these are no more than so many pairs of orders ask for, else those."""
        if columns < 2 or 2**columns <= 2 * pairs * (columns - 1) + 2:
            return cls.all(columns)
        return cls.sampled(columns, pairs, seed)

    @classmethod
    def all(cls, columns: int) -> Self:
        """Return all sets of columns, with the weights that a mean over all orders has."""
        masks = (np.arange(2**columns)[:, None] >> np.arange(columns) & 1).astype(bool)
        size = masks.sum(1)
        orders = [factorial(k) * factorial(columns - 1 - k) / factorial(columns) for k in range(columns)] + [0.0]
        after = np.array([0.0, *orders])[size]  # of sets that hold the column: orders of the set without it
        return cls(masks, np.where(masks, after[:, None], -np.array(orders)[size][:, None]))

    @classmethod
    def sampled(cls, columns: int, pairs: int, seed: int) -> Self:
        """Return the sets that orders go through, drawn in pairs of one and its reverse."""
        generator = np.random.default_rng(seed)
        orders = np.stack([generator.permutation(columns) for _ in range(pairs)])
        orders = np.concatenate([orders, orders[:, ::-1]])
        place = np.argsort(orders, axis=1)
        masks = place[:, None] < np.arange(columns + 1)[:, None]  # (orders, steps, columns)
        weights = np.zeros(masks.shape)
        each = np.arange(len(orders))[:, None]
        step = np.arange(columns)
        weights[each, step, orders] = -1 / len(orders)
        weights[each, step + 1, orders] = 1 / len(orders)
        different, which = np.unique(masks.reshape(-1, columns), axis=0, return_inverse=True)
        summed = np.zeros(different.shape)
        np.add.at(summed, which.reshape(-1), weights.reshape(-1, columns))
        return cls(different, summed)


def shapley_values(
    value: Callable[[Numbers], Numbers],
    rows: Numbers,
    baseline: Numbers,
    groups: NDArray[np.int64],
    exchanges: Exchanges,
) -> tuple[Numbers, Numbers, float]:
    """Return the shares of columns, (rows, columns), the values of the rows, and that of the baseline.

    Args:
        value: A function from features (any number of rows, features) to one number each.
        rows: Features of the rows, (rows, features).
        baseline: Features of the baseline, (features,).
        groups: The column that each feature belongs to, (features,).
        exchanges: The sets of columns to exchange, for as many columns as there are.
    """
    start = float(value(baseline[None])[0])
    masks = exchanges.masks[1:]  # without the empty set, which is the baseline whatever the row
    if not len(masks):
        return np.zeros((len(rows), exchanges.masks.shape[1])), np.full(len(rows), start), start
    features = masks[:, groups]
    everything = int(np.flatnonzero(masks.all(1))[0])
    shares, totals = [], []
    most = max(1, MOST_VALUES // len(masks))
    for first in range(0, len(rows), most):
        some = rows[first : first + most]
        found = np.empty(len(some) * len(masks))
        for at in range(0, len(found), BLOCK):
            row, which = np.divmod(np.arange(at, min(at + BLOCK, len(found))), len(masks))
            found[at : at + BLOCK] = value(np.where(features[which], some[row], baseline))
        values = found.reshape(len(some), len(masks))
        shares.append((values - start) @ exchanges.weights[1:])
        totals.append(values[:, everything])
    return np.concatenate(shares), np.concatenate(totals), start
