"""Explain which columns cause the epistemic uncertainty of a row.

Shapley values distribute the epistemic uncertainty of a row (variance between samples, or mutual information for
classes) over its columns, relative to a typical row: the median of each number and date, and the most common category.
They need only predictions, so they work for every method, also for networks with binned inputs, whose gradients carry
no information. All predictions use the same samples, so sampling noise does not enter the differences.

The contribution of a column is the change of the value when the column joins others that are already replaced, averaged
over all orders (Shapley, 1953). With few columns all subsets are evaluated, which is exact. With many columns orders
are sampled (Strumbelj and Kononenko, 2014), each with its reverse, which removes most of the noise (Mitchell et al.,
2022). In both cases the contributions are a linear map of the values at rows with some replaced columns, and

- they sum to the value of the row minus the value of the baseline, for any number of orders;
- a column that changes no value gets 0, for example a column that equals the baseline;
- two columns with the same effect get the same contribution, up to sampling noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..arguments import require_whole
from ..errors import InputError
from ..predictive import ClassificationPredictive
from ..words import DAY
from .column_types import Numbers
from .encoded_columns import DateColumn, NumericColumn
from .preprocessing import Preprocessing, TableColumn, TableRows
from .stacked import one_thread
from .training_columns import CategoryCounts, NumberCounts, TrainingColumns

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
        order, step = np.arange(len(orders))[:, None], np.arange(columns)
        weights[order, step, orders] = -1 / len(orders)
        weights[order, step + 1, orders] = 1 / len(orders)
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
        values = np.empty((len(some), len(masks)))
        for at in range(0, values.size, BLOCK):
            row, which = np.divmod(np.arange(at, min(at + BLOCK, values.size)), len(masks))
            values.flat[at : at + BLOCK] = value(np.where(features[which], some[row], baseline))
        shares.append((values - start) @ exchanges.weights[1:])
        totals.append(values[:, everything])
    return np.concatenate(shares), np.concatenate(totals), start


# Largest number of columns that are explained one by one, and number of rows that decide which ones.
MOST_EXPLAINED, SCREENED_ROWS = 100, 10

# Pairs of sampled column orders; with up to nine columns, all subsets cost no more.
PAIRS = 32

# Smallest share of a column that `words` names.
LEAST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class UncertaintyExplanation:
    """The contributions of the columns to the epistemic uncertainty of each row.

    Args:
        contributions: One number for each row and column, in the squared units of the target (regression) or in nats
            (classification). It is negative if a column reduces the uncertainty.
        total: The epistemic uncertainty of each row: variance or mutual information.
        baseline: The epistemic uncertainty of the baseline row. The contributions of a row sum to `total - baseline`.
        baseline_row: The baseline row, as a table.
    """

    contributions: pd.DataFrame
    total: pd.Series
    baseline: float
    baseline_row: pd.DataFrame

    @property
    def shares(self) -> pd.DataFrame:
        """Contributions divided by the baseline plus all positive contributions of the row."""
        added = self.contributions.clip(lower=0).sum(axis=1) + self.baseline
        return self.contributions.div(added.where(added > 0, 1.0), axis=0)

    def top(self, k: int = 3) -> pd.DataFrame:
        """Return the k largest positive contributions of each row, one per line.

        The columns of the result are `row` (the index of the table), `column`, `contribution` and `share`.
        """
        require_whole("k", k)
        values, shares = self.contributions.to_numpy(), self.shares.to_numpy()
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        row, place = np.arange(len(values)).repeat(order.shape[1]), order.reshape(-1)
        positive = values[row, place] > 0
        row, place = row[positive], place[positive]
        return pd.DataFrame(
            {
                "row": self.contributions.index[row],
                "column": self.contributions.columns[place],
                "contribution": values[row, place],
                "share": shares[row, place],
            }
        )

    def overall(self) -> pd.DataFrame:
        """Return a summary of each column, most important first.

        The columns of the result are `first` (the fraction of rows to which the column contributes most), `share` (its
        mean share) and `contribution` (its mean contribution).
        """
        values = self.contributions
        first = np.zeros(values.shape[1])
        if values.size:
            leading = values.to_numpy().argmax(1)[values.to_numpy().max(1) > 0]
            first = np.bincount(leading, minlength=values.shape[1]) / len(values)
        summary = pd.DataFrame(
            {"first": first, "share": self.shares.mean().to_numpy(), "contribution": values.mean().to_numpy()},
            index=values.columns,
        )
        return summary.sort_values(["first", "contribution"], ascending=False, kind="stable")

    def words(self, k: int = 3) -> list[str]:
        """Return a text for each row that names the columns with the largest shares, such as "area 64 %, town 20 %".

        It names at most k columns with a share of at least 10 %. It is "" if no column has such a share.
        """
        names, shares = list(self.contributions.columns), self.shares.to_numpy()
        order = np.argsort(-shares, axis=1, kind="stable")[:, : require_whole("k", k)]
        return [
            ", ".join(f"{names[place]} {100 * row[place]:.0f} %" for place in places if row[place] >= LEAST_SHARE)
            for row, places in zip(shares, order, strict=True)
        ]


def explain_uncertainty(
    predict: Callable[[Numbers], Any],
    preprocessing: Preprocessing,
    table: TableRows,
    baseline_row: Any,
    *,
    pairs: int = PAIRS,
    output: int = 0,
    seed: int = 0,
) -> UncertaintyExplanation:
    """Return the contributions of columns to the epistemic uncertainty; see the estimators' `explain_uncertainty`.

    Args:
        predict: A function from inputs, (rows, inputs), to predictives; it uses the same samples in every call.
        preprocessing: The preprocessing that has read the table.
        table: The rows to explain.
        baseline_row: A table with the row to compare with.
        pairs: Pairs of sampled column orders.
        output: The output to explain, if a regression has several.
        seed: Seed of the column orders.
    """
    pairs = require_whole("pairs", pairs, error=InputError)
    inputs, baseline = map(preprocessing.network_inputs, (table.features, preprocessing.transform(baseline_row)))
    if len(baseline) != 1:
        raise InputError(f"baseline must be a table with one row, got {len(baseline)} rows.")
    if not isinstance(baseline_row, pd.DataFrame):
        baseline_row = pd.DataFrame(np.asarray(baseline_row), columns=preprocessing.names)
    first = predict(baseline)
    outputs = 1 if isinstance(first, ClassificationPredictive) else first.epistemic.shape[1]
    output = require_whole("output", output, 0, outputs - 1, error=InputError)

    def epistemic(rows: Numbers) -> Numbers:
        predictive = predict(rows)
        if isinstance(predictive, ClassificationPredictive):
            return predictive.mutual_information.clamp_min(0).numpy()
        return np.asarray(predictive.epistemic[:, output])

    widths = preprocessing.widths
    used = np.flatnonzero(widths)
    groups = np.arange(len(used)).repeat(widths[used])
    with one_thread():
        players = _players(epistemic, inputs, baseline[0], groups, len(used))
        exchanges = Exchanges.sample(int(players.max(initial=-1)) + 1, pairs, seed)
        shares, total, start = shapley_values(epistemic, inputs, baseline[0], players[groups], exchanges)
    contributions = np.zeros((len(inputs), len(widths)))
    contributions[:, used] = shares[:, players] / np.bincount(players)[players]
    frame = pd.DataFrame(contributions, index=table.index, columns=preprocessing.names)
    return UncertaintyExplanation(frame, pd.Series(total, index=frame.index, name="epistemic"), start, baseline_row)


def _players(
    value: Callable[[Numbers], Numbers], rows: Numbers, baseline: Numbers, groups: NDArray[np.int64], columns: int
) -> NDArray[np.int64]:
    """Return the number of each column in the explanation; columns with the same number share its contribution equally.

    With many columns, those whose replacement by the baseline changes the values of some rows most have their own
    number.
    """
    if columns <= MOST_EXPLAINED:
        return np.arange(columns)
    effects = np.zeros(columns)
    for row in rows[:: -(-len(rows) // SCREENED_ROWS)]:
        start = value(row[None])[0]
        for first in range(0, columns, BLOCK):
            replaced = np.arange(first, min(first + BLOCK, columns))
            effects[replaced] += np.abs(value(np.where(groups == replaced[:, None], baseline, row)) - start)
    players = np.full(columns, MOST_EXPLAINED - 1)
    players[np.argsort(-effects, kind="stable")[: MOST_EXPLAINED - 1]] = np.arange(MOST_EXPLAINED - 1)
    return players


def usual_row(preprocessing: Preprocessing, training: TrainingColumns) -> pd.DataFrame:
    """Return a table with a typical row: the median of each number and date, and the most common category."""
    return pd.concat(map(_usual, preprocessing.columns, training.columns), axis=1)


def _usual(column: TableColumn, training: NumberCounts | CategoryCounts) -> pd.Series:
    """Return the typical value of a column, as a series of one value."""
    if isinstance(training, CategoryCounts):
        most = max(training.counts, key=lambda category: training.counts[category], default=None)
        if most is not None and training.missing > training.counts[most]:
            most = None
        return pd.Series([most], name=column.name, dtype=object)
    if isinstance(column, DateColumn):
        middle = _middle(column.trend, training)
        day = np.datetime64("NaT", "s") if middle is None else np.datetime64(round(middle * DAY), "s")
        return pd.Series(np.array([day]), name=column.name)
    assert isinstance(column, NumericColumn)
    return pd.Series([_middle(column, training)], name=column.name, dtype=float)


def _middle(column: NumericColumn, training: NumberCounts) -> float | None:
    """Return the median; for a column with few different values, one that occurs in training."""
    up_to = np.cumsum(training.counts[1::2])
    if not training.single or not len(up_to):
        return column.centre
    return training.edges[1::2][int(np.searchsorted(up_to, up_to[-1] / 2))]
