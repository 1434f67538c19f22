"""Find columns that should not be inputs: without information, or because they reveal the target. Screen wide tables.

Estimators use every column of tables with up to 300 columns. Commands that read a file first call

- `why_no_feature`, for columns that are empty, the same in every row, or ids. They are left out.
- `leak`, for columns that are copies or recodings of the target, or values that are known only afterwards. They are
  reported. No test can tell such a column from a legitimate perfect predictor. The thresholds are therefore high, and a
  person has to check the result.

A network with thousands of inputs fits the noise of a few hundred rows. Of a table with more columns, every network
therefore uses only columns that are associated with the target in its own training rows (`ColumnScreen`):

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

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import stdtr
from scipy.stats import rankdata
from torch import Tensor

from ..errors import quoted
from ..words import format_date
from .column_types import ColumnValues, Numbers, is_text
from .dates import days, is_date
from .targets import Targets

# The reason for leaving out a column without values.
EMPTY = "is empty"

# If more than this fraction of cells contains text that occurs only once, the text is not a category.
MOST = 0.5

# With fewer cells, ids look the same as categories or measurements.
LEAST_CELLS = 8

# With one of these words in the column's name, whole numbers that are all different are ids.
NAMES_ROWS = {"id", "ids", "uid", "uuid", "guid", "key", "index", "idx", "row", "nr", "no", "num", "record"}

# With one of these words in the column's name, consecutive numbers are a time, which can be informative.
NAMES_TIMES = {"year", "years", "month", "week", "day", "days", "hour", "hours", "minute", "time", "date", "age"}

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def why_no_feature(name: str, values: ColumnValues, rows: NDArray[np.int64]) -> str:
    """Return why a column is left out, as the end of a sentence "It ..."; "" for a useful column.

    Args:
        name: Name of the column.
        values: All its values, numbers, text or dates.
        rows: Number of each row in its file.
    """
    absent = np.array([value is None for value in values]) if is_text(values) else np.isnan(values)
    present = values[~absent]
    if not len(present):
        return EMPTY
    different = pd.Series(present).value_counts(sort=False)  # text of a fixed width would be as wide as the longest
    if len(different) == 1:
        # If some cells are empty, that can be informative.
        return "" if absent.any() else f"is {_shown(present[0])} in every row"
    if len(present) < LEAST_CELLS or is_date(values):
        return ""
    if is_text(values):
        single = int((different == 1).sum())
        reason = f"contains text such as {quoted(present[0])} that differs in most rows"
        return reason if single > MOST * len(present) else ""
    numbers = np.sort(present)
    if len(different) < len(values) or (numbers != np.round(numbers)).any() or numbers[0] < 0:
        return ""
    words = words_of(name)
    counts_rows = bool((np.diff(numbers) == 1).all() or (np.diff(values - rows) == 0).all())
    if counts_rows and not words & NAMES_TIMES:
        return f"numbers the rows, from {int(numbers[0])} to {int(numbers[-1])}"
    return "is an id, with a different whole number in every row" if words & NAMES_ROWS else ""


def words_of(name: str) -> set[str]:
    """Return the words in a column's name, in lower case."""
    return {word.lower() for word in WORDS.findall(name)}


def _shown(value: str | float | np.datetime64) -> str:
    if isinstance(value, np.datetime64):
        return format_date(value)
    return quoted(value) if isinstance(value, str) else f"{value:.10g}"


Codes = NDArray[np.int64]

# Smallest fraction of the target's variance, or of the majority class's mistakes, that a leaking column explains.
VARIANCE, MISTAKES = 0.999, 0.99

# Smallest squared rank correlation for a linear leak, so that one outlier is not enough.
RANKS = 0.9

# Smallest number of rows, and of mistakes of the majority class; with fewer, chance could be the cause.
LEAST_ROWS, LEAST_WRONG = 20, 10

# Largest number of rows to check, sampled at random.
MOST_ROWS = 20_000


def leak(values: ColumnValues, y: NDArray[Any], target: str, *, classes: bool) -> str:
    """Return how a column reveals the target, as the end of a sentence "It ..."; "" if it does not.

    Args:
        values: The column, numbers, text or dates.
        y: The targets of the same rows.
        target: The name of the target.
        classes: Whether the targets are classes.
    """
    order = np.random.default_rng(0).permutation(len(y))[:MOST_ROWS]
    if len(order) < LEAST_ROWS:
        return ""
    values, y = days(values[order]), y[order]
    codes = _codes(values)
    if classes:
        labels = pd.factorize(np.array([str(label) for label in y], dtype=object), sort=True)[0]
        wrong = len(labels) - int(np.bincount(labels).max())
        missed = 0 if _split_by_thresholds(codes, labels) else int((_classes_by(codes, labels) != labels).sum())
        if wrong < LEAST_WRONG or missed > (1 - MISTAKES) * wrong:
            return ""
        right = "all" if not missed else f"{len(y) - missed:,} of"
        return f"alone predicts {target} correctly in {right} {len(y):,} rows"
    y = y.astype(np.float64)
    if not is_text(values) and (present := ~np.isnan(values)).sum() >= max(LEAST_ROWS, len(y) / 2):
        x, targets = values[present], y[present]
        ranks = _squared(rankdata(x), rankdata(targets))
        if ranks > RANKS and _squared(x, targets) > VARIANCE:
            return f"is (nearly) a linear function of {target}"
        if ranks > VARIANCE:
            return f"puts the rows in (nearly) the same order as {target}"
    left = float(((_numbers_by(codes, y) - y) ** 2).mean()) / max(float(y.var()), 1e-300)
    return f"alone predicts {target} almost exactly" if left < 1 - VARIANCE else ""


def _codes(values: ColumnValues) -> Codes:
    """Return the ranks of a column's values; missing values have a separate rank."""
    if is_text(values):
        texts = np.array(["" if value is None else f"={value}" for value in values], dtype=object)
        return pd.factorize(texts, sort=True)[0].astype(np.int64)
    return np.unique(values, return_inverse=True)[1]


def _squared(x: Numbers, y: Numbers) -> float:
    """Return the squared correlation; 0 if x or y is constant."""
    x, y = ((values / max(np.abs(values).max(), 1e-300)) for values in (x, y))  # prevents overflow of squares
    x, y = x - x.mean(), y - y.mean()
    size = float((x**2).sum() * (y**2).sum())
    return float((x * y).sum()) ** 2 / size if size > 0 else 0.0


def _split_by_thresholds(codes: Codes, labels: Codes) -> bool:
    """Return whether thresholds on the sorted values separate all classes."""
    order = np.lexsort((labels, codes))
    changes = np.diff(labels[order]) != 0
    return int(changes.sum()) == labels.max() and not (changes & (np.diff(codes[order]) == 0)).any()


def _numbers_by(codes: Codes, y: Numbers) -> Numbers:
    """Return for each row the mean target of the other half's rows with the same or similar values."""
    means_by = np.empty(len(y))
    for half in (0, 1):
        learned = np.arange(len(y)) % 2 == half
        seen, places, counts = np.unique(codes[learned], return_inverse=True, return_counts=True)
        means = np.bincount(places, y[learned]) / counts
        means_by[~learned] = np.interp(codes[~learned], seen, means)
    return means_by


def _classes_by(codes: Codes, labels: Codes) -> Codes:
    """Return for each row the most frequent class of the other half's rows with the same or the nearest value."""
    classes = np.empty_like(labels)
    for half in (0, 1):
        learned = np.arange(len(labels)) % 2 == half
        pairs, counts = np.unique(np.stack([codes[learned], labels[learned]]), axis=1, return_counts=True)
        pairs = pairs[:, np.lexsort((-counts, pairs[0]))]
        seen, first = np.unique(pairs[0], return_index=True)
        above = np.searchsorted(seen, codes[~learned]).clip(1, max(1, len(seen) - 1)) if len(seen) > 1 else 0
        middle = (seen[above - 1] + seen[above]) / 2
        classes[~learned] = pairs[1][first[np.where(codes[~learned] > middle, above, above - 1)]]
    return classes


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
