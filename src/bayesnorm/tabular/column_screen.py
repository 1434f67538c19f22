"""Choose the columns of a wide table that the networks use.

A network with thousands of inputs fits the noise of a few hundred rows. Of a table with more than 300 columns, every
network therefore uses only columns that are associated with the target in its own training rows:

1. Every feature, and the square of every number, is correlated with the target. Numeric targets are replaced by their
   ranks, and every class is a target of 0 and 1. Student's t test of the correlation gives a p-value. The smallest one
   of a column, multiplied by the number of its tests, is the p-value of the column.
2. The columns are chosen by the procedure of Benjamini and Hochberg (1995), with at most half of them expected to be
   there by chance, and at most 300 columns. There may be none: the network then predicts a constant.

The held-out rows of a network have no influence on its columns, so held-out errors include the cost of the choice.
Columns that are associated with the target only together with other columns, as the factors of a product, are not
found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr
from scipy.stats import rankdata
from torch import Tensor

from .column_types import Numbers
from .targets import Targets

# Tables with more columns are screened; a network uses at most this many.
MOST_COLUMNS = 300

# Largest expected fraction of columns that are chosen by chance.
FALSE_SHARE = 0.5

# Numbers that are further from the mean, in standard deviations, count as this far when they are squared.
FARTHEST = 3.0

# Number of features that are compared with the target at a time.
BLOCK = 256


@dataclass(frozen=True, eq=False)
class ColumnScreen:
    """Chooses columns by their association with the target.

    Args:
        features: Standardised features of all training rows, (rows, features).
        groups: The number of the column of each feature, (features,).
        targets: The targets of these rows.
        used: The features that are inputs of the networks; None for all.
    """

    features: Numbers
    groups: NDArray[np.int64]
    targets: Targets
    used: tuple[int, ...] | None = None
    _chosen: dict[bytes, NDArray[np.bool_]] = field(default_factory=dict)

    def inputs(self, rows: Tensor) -> NDArray[np.bool_]:
        """Return which inputs a network uses that is trained on some rows, (inputs,)."""
        chosen = self.chosen(rows)
        return chosen if self.used is None else chosen[list(self.used)] if self.used else np.zeros(1, bool)

    def chosen(self, rows: Tensor) -> NDArray[np.bool_]:
        """Return which features a network uses that is trained on some rows, (features,)."""
        key = rows.numpy().tobytes()
        if key not in self._chosen:
            self._chosen[key] = self._choose(rows)
        return self._chosen[key]

    def _choose(self, rows: Tensor) -> NDArray[np.bool_]:
        columns, first, features = np.unique(self.groups, return_index=True, return_counts=True)
        y, weights = self._targets(rows)
        strongest = np.maximum.reduceat(self._squared_correlations(rows, y, weights), first)
        tests = 2 * features * y.shape[1]
        freedom = len(rows) - 2
        if freedom < 1:
            return np.zeros(len(self.groups), bool)
        t = np.sqrt(freedom * strongest / np.maximum(1 - strongest, np.finfo(float).tiny))
        p = 2 * tests * stdtr(freedom, -t)
        order = np.lexsort((-strongest, p))
        passed = np.flatnonzero(p[order] <= FALSE_SHARE * np.arange(1, len(p) + 1) / len(p))
        count = min(passed.max(initial=-1) + 1, MOST_COLUMNS)
        return np.isin(self.groups, columns[order[:count]])

    def _targets(self, rows: Tensor) -> tuple[Numbers, Numbers]:
        """Return ranks of the targets of some rows, or 1 for the class of each row, and the weights of the rows."""
        targets = self.targets
        values, weights = targets.values[rows].numpy(), np.ones((len(rows), 1))
        if targets.weights is not None:
            weights = targets.weights[rows].numpy()[:, None]
        y = rankdata(values, axis=0) if values.ndim == 2 else values[:, None] == np.arange(values.max() + 1)
        return y.astype(float), weights

    def _squared_correlations(self, rows: Tensor, y: Numbers, weights: Numbers) -> Numbers:
        """Return the largest squared correlation of each feature, or its square, with a target."""
        y = _standardised(y, weights)
        strongest = np.empty(len(self.groups))
        for start in range(0, len(strongest), BLOCK):
            x = self.features[rows.numpy(), start : start + BLOCK]
            squares = np.square(np.clip(x - x.mean(0), -FARTHEST, FARTHEST))
            correlations = [np.square(y.T @ _standardised(part, weights)).max(0) for part in (x, squares)]
            strongest[start : start + BLOCK] = np.maximum(*correlations)
        return np.minimum(strongest, 1.0)


def _standardised(values: Numbers, weights: Numbers) -> Numbers:
    """Return values, (rows, columns), so that products of two columns sum to their correlation; 0 if constant."""
    centred = np.sqrt(weights) * (values - (weights * values).sum(0) / weights.sum())
    norm = np.linalg.norm(centred, axis=0)
    return np.where(norm > 1e-9, centred / np.maximum(norm, 1e-9), 0.0)
