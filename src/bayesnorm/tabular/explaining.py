"""Explain which columns cause the epistemic uncertainty of a row.

Shapley values (`shapley.py`) distribute the epistemic uncertainty of a row (variance between samples, or mutual
information for classes) over its columns, relative to a typical row: the median of each number and date, and the most
common category. They need only predictions, so they work for every method, also for networks with binned inputs, whose
gradients carry no information. All predictions use the same samples, so sampling noise does not enter the differences.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..arguments import require_whole
from ..errors import BayesNormError, InputError
from ..predictive import ClassificationPredictive
from ..words import DAY
from .column_types import Numbers
from .date_column import DateColumn
from .encoded_columns import NumericColumn
from .preprocessing import Preprocessing, TableColumn
from .shapley import Exchanges, shapley_values
from .stacked import one_thread
from .training_columns import CategoryCounts, NumberCounts, TrainingColumns

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
        kept = values[row, place] > 0
        row, place = row[kept], place[kept]
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
        found = pd.DataFrame(
            {"first": first, "share": self.shares.mean().to_numpy(), "contribution": values.mean().to_numpy()},
            index=values.columns,
        )
        return found.sort_values(["first", "contribution"], ascending=False, kind="stable")

    def words(self, k: int = 3) -> list[str]:
        """Return a text for each row that names the columns with the largest shares, such as "area 64 %, town 20 %".

        It names at most k columns with a share of at least 10 %. It is "" if no column has such a share.
        """
        names, shares = list(self.contributions.columns), self.shares.to_numpy()
        order = np.argsort(-shares, axis=1, kind="stable")[:, : require_whole("k", k)]
        return [
            ", ".join(f"{names[place]} {100 * own[place]:.0f} %" for place in places if own[place] >= LEAST_SHARE)
            for own, places in zip(shares, order, strict=True)
        ]


def explain_uncertainty(
    predict: Callable[[Numbers], Any],
    preprocessing: Preprocessing,
    features: Numbers,
    baseline_row: Any,
    *,
    index: Any = None,
    pairs: int = PAIRS,
    output: int = 0,
    seed: int = 0,
) -> UncertaintyExplanation:
    """Return the contributions of columns to the epistemic uncertainty; see the estimators' `explain_uncertainty`.

    Args:
        predict: A function from features, (rows, features), to predictives; it uses the same samples in every call.
        preprocessing: The preprocessing that made the features.
        features: The rows to explain.
        baseline_row: A table with the row to compare with.
        index: Labels of the rows; None for row numbers.
        pairs: Pairs of sampled column orders.
        output: The output to explain, if a regression has several.
        seed: Seed of the column orders.
    """
    pairs = require_whole("pairs", pairs, error=InputError)
    baseline = preprocessing.transform(baseline_row)
    if len(baseline) != 1:
        raise InputError(f"baseline must be a table with one row, got {len(baseline)} rows.")
    if not isinstance(baseline_row, pd.DataFrame):
        baseline_row = pd.DataFrame(np.asarray(baseline_row), columns=preprocessing.names)
    outputs = 1 if _of_classes(first := predict(baseline)) else first.epistemic.shape[1]
    output = require_whole("output", output, 0, outputs - 1, error=InputError)

    def epistemic(rows: Numbers) -> Numbers:
        found = predict(rows)
        part = found.mutual_information.clamp_min(0) if _of_classes(found) else found.epistemic[:, output]
        values: Numbers = part.numpy()
        return values

    widths = np.array([len(column.features) for column in preprocessing.columns])
    used = np.flatnonzero(widths)
    groups = np.arange(len(used)).repeat(widths[used])
    exchanges = Exchanges.sample(len(used), pairs, seed)
    with one_thread():
        shares, total, start = shapley_values(epistemic, features, baseline[0], groups, exchanges)
    contributions = np.zeros((len(features), len(widths)))
    contributions[:, used] = shares
    frame = pd.DataFrame(contributions, index=index, columns=preprocessing.names)
    return UncertaintyExplanation(frame, pd.Series(total, index=frame.index, name="epistemic"), start, baseline_row)


def usual_row(preprocessing: Preprocessing, training: TrainingColumns | None) -> pd.DataFrame:
    """Return a table with a typical row: the median of each number and date, and the most common category."""
    if training is None:
        raise BayesNormError(
            "explain_uncertainty needs a baseline row, but an earlier version fitted this estimator without storing "
            "one. Pass baseline=..., or fit the estimator again."
        )
    parts = [_usual(*each) for each in zip(preprocessing.columns, training.columns, strict=True)]
    return pd.concat(parts, axis=1)


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


def _of_classes(predictive: Any) -> bool:
    return isinstance(predictive, ClassificationPredictive)
