"""Why an estimator doubts a row: which columns make its epistemic part large.

The epistemic part of a row (the variance between networks; for classes their mutual information) is shared out among
its columns by Shapley values (`shapley.py`), held against a usual row: the median of each number and date, the most
common category. Predictions are all that is asked for, so that it holds for every method, also where a network takes
its inputs in steps and a gradient would say nothing. All predictions come from the same samples: differences between
them are differences between rows, not between samples.
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
from ..stacked import one_thread
from .column_types import Numbers
from .date_column import DateColumn
from .dates import DAY
from .encoded_columns import NumericColumn
from .preprocessing import Preprocessing, TableColumn
from .shapley import Exchanges, shapley_values
from .training_columns import CategoryCounts, NumberCounts, TrainingColumns

# Pairs of orders that columns are exchanged in; of up to nine columns, all subsets are no more than these ask for.
PAIRS = 32

# Share from which a column is named in words.
LEAST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class UncertaintyExplanation:
    """What the columns of each row add to its epistemic part.

    Args:
        contributions: One number for each row and column, in the units of the epistemic part (of regression the
            target's, squared; of classification nats); below 0 where a column takes uncertainty away.
        total: The epistemic part of each row.
        baseline: That of the row they are held against: a row's contributions sum to `total - baseline`.
        baseline_row: That row, as a table.
    """

    contributions: pd.DataFrame
    total: pd.Series
    baseline: float
    baseline_row: pd.DataFrame

    @property
    def shares(self) -> pd.DataFrame:
        """Contributions as parts of all that makes for uncertainty: the baseline's, and what columns add to it."""
        added = self.contributions.clip(lower=0).sum(axis=1) + self.baseline
        return self.contributions.div(added.where(added > 0, 1.0), axis=0)

    def top(self, k: int = 3) -> pd.DataFrame:
        """Return the k columns that add most to each row, where they add anything, one in each line.

        The columns are `row` (as in the table's index), `column`, `contribution` and `share`.
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
        """Return the most common reasons: for each column, the most common first,

        `first` (the share of rows to which it adds most), `share` (its mean share) and `contribution` (its mean).
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
        """Say for each row which columns its uncertainty comes from, such as "area 64 %, town 20 %".

        At most k are named, those with a tenth or more of all that makes for uncertainty; "" where no column has that.
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
    """Share the epistemic part of rows out among their columns; estimators' `explain_uncertainty` is the way in.

    Args:
        predict: A function from features (rows, features) to predictives, of the same samples in every call.
        preprocessing: What made the features.
        features: The rows to explain.
        baseline_row: A table of one row that they are held against.
        index: Labels of the rows; None for their numbers.
        pairs: Pairs of orders that columns are exchanged in.
        output: Which of several outputs of a regression.
        seed: Seed of the orders.
    """
    pairs = require_whole("pairs", pairs, error=InputError)
    baseline = preprocessing.transform(baseline_row)
    if len(baseline) != 1:
        raise InputError(f"baseline: a table of {len(baseline)} rows; one row would work.")
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
    exchanges = Exchanges.of(len(used), pairs, seed)
    with one_thread():
        shares, total, start = shapley_values(epistemic, features, baseline[0], groups, exchanges)
    contributions = np.zeros((len(features), len(widths)))
    contributions[:, used] = shares
    frame = pd.DataFrame(contributions, index=index, columns=preprocessing.names)
    return UncertaintyExplanation(frame, pd.Series(total, index=frame.index, name="epistemic"), start, baseline_row)


def usual_row(preprocessing: Preprocessing, training: TrainingColumns | None) -> pd.DataFrame:
    """Return a table of one row: the median of each number and date of training, the most common category."""
    if training is None:
        raise BayesNormError(
            "explain_uncertainty: this estimator was fitted by an earlier version, which did not keep what a usual row is; "
            "fitting it again, or giving a baseline, would work."
        )
    parts = [_usual(*each) for each in zip(preprocessing.columns, training.columns, strict=True)]
    return pd.concat(parts, axis=1)


def _usual(column: TableColumn, training: NumberCounts | CategoryCounts) -> pd.Series:
    """Return what a column mostly holds, as a series of one value."""
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
    """Return the median; of few values, one of them: what lies half way between two is what training never had."""
    up_to = np.cumsum(training.counts[1::2])
    if not training.single or not len(up_to):
        return column.centre
    return training.edges[1::2][int(np.searchsorted(up_to, up_to[-1] / 2))]


def _of_classes(predictive: Any) -> bool:
    return isinstance(predictive, ClassificationPredictive)
