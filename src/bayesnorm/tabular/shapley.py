"""Shapley values: the contribution of each column when the columns of a row replace those of a baseline row one by one.

If columns interact, the order of replacement matters, so the contribution of a column is its mean over all orders
(Shapley, 1953). With few columns all subsets are evaluated, which is exact. With many columns orders are sampled
(Strumbelj and Kononenko, 2014), each with its reverse, which removes most of the noise (Mitchell et al., 2022). In both
cases the contributions are a linear map of the values at rows with some replaced columns. They need no gradients, and

- they sum to the value of the row minus the value of the baseline, for any number of orders;
- a column that changes no value gets 0, for example a column that equals the baseline;
- two columns with the same effect get the same contribution, up to sampling noise.
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

# Rows predicted at a time: the samples of more rows do not fit into the processor's cache.
BLOCK = 2_000

# Largest number of values in memory at a time.
MOST_VALUES = 2**18


@dataclass(frozen=True)
class Exchanges:
    """The sets of columns to replace, and the weight of each set in each column's contribution.

    Args:
        masks: One row for each set of replaced columns, (sets, columns); the first set is empty.
        weights: The weight of each set's value in the contribution of each column, (sets, columns).
    """

    masks: Masks
    weights: Numbers

    @classmethod
    def sample(cls, columns: int, pairs: int, seed: int) -> Self:
        """Return all sets of columns, or the sets of sampled orders if these are fewer."""
        if columns < 2 or 2**columns <= 2 * pairs * (columns - 1) + 2:
            return cls.all(columns)
        return cls.sampled(columns, pairs, seed)

    @classmethod
    def all(cls, columns: int) -> Self:
        """Return all sets of columns, with the weights of a mean over all orders."""
        masks = (np.arange(2**columns)[:, None] >> np.arange(columns) & 1).astype(bool)
        size = masks.sum(1)
        orders = [factorial(k) * factorial(columns - 1 - k) / factorial(columns) for k in range(columns)] + [0.0]
        after = np.array([0.0, *orders])[size]  # for sets with the column: the orders of the set without it
        return cls(masks, np.where(masks, after[:, None], -np.array(orders)[size][:, None]))

    @classmethod
    def sampled(cls, columns: int, pairs: int, seed: int) -> Self:
        """Return the sets of sampled orders, each order with its reverse."""
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
    """Return the contributions of the columns, (rows, columns), the values of the rows, and the value of the baseline.

    Args:
        value: A function from features, (rows, features), to one number for each row.
        rows: Features of the rows, (rows, features).
        baseline: Features of the baseline, (features,).
        groups: The column that each feature belongs to, (features,).
        exchanges: The sets of columns to replace.
    """
    start = float(value(baseline[None])[0])
    masks = exchanges.masks[1:]  # without the empty set, which is always the baseline
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
