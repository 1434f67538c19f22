"""Find columns that reveal the target: copies or recodings of it, or values that are known only afterwards.

No test can tell such a column from a legitimate perfect predictor. The thresholds are therefore high, and a person has
to check the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from .column_types import ColumnValues, Numbers, is_text
from .dates import days

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
        labels = np.unique(y.astype(str), return_inverse=True)[1]
        wrong = len(labels) - int(np.bincount(labels).max())
        missed = 0 if _split_by_thresholds(codes, labels) else int((_classes_by(codes, labels) != labels).sum())
        if wrong < LEAST_WRONG or missed > (1 - MISTAKES) * wrong:
            return ""
        right = "all" if not missed else f"{len(y) - missed:,} of"
        return f"alone predicts {target} correctly in {right} {len(y):,} rows"
    y = y.astype(np.float64)
    if not is_text(values) and (known := ~np.isnan(values)).sum() >= max(LEAST_ROWS, len(y) / 2):
        x, own = values[known], y[known]
        ranks = _squared(rankdata(x), rankdata(own))
        if ranks > RANKS and _squared(x, own) > VARIANCE:
            return f"is (nearly) a linear function of {target}"
        if ranks > VARIANCE:
            return f"puts the rows in (nearly) the same order as {target}"
    left = float(((_numbers_by(codes, y) - y) ** 2).mean()) / max(float(y.var()), 1e-300)
    return f"alone predicts {target} almost exactly" if left < 1 - VARIANCE else ""


def _codes(values: ColumnValues) -> Codes:
    """Return the ranks of a column's values; missing values have a separate rank."""
    if is_text(values):
        return np.unique(["" if value is None else f"={value}" for value in values], return_inverse=True)[1]
    return np.unique(values, return_inverse=True)[1]


def _squared(x: Numbers, y: Numbers) -> float:
    """Return the squared correlation; 0 if x or y is constant."""
    x, y = ((each / max(np.abs(each).max(), 1e-300)) for each in (x, y))  # prevents overflow of squares
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
    found = np.empty(len(y))
    for half in (0, 1):
        learned = np.arange(len(y)) % 2 == half
        seen, places, counts = np.unique(codes[learned], return_inverse=True, return_counts=True)
        means = np.bincount(places, y[learned]) / counts
        found[~learned] = np.interp(codes[~learned], seen, means)
    return found


def _classes_by(codes: Codes, labels: Codes) -> Codes:
    """Return for each row the most frequent class of the other half's rows with the same or the nearest value."""
    found = np.empty_like(labels)
    for half in (0, 1):
        learned = np.arange(len(labels)) % 2 == half
        pairs, counts = np.unique(np.stack([codes[learned], labels[learned]]), axis=1, return_counts=True)
        pairs = pairs[:, np.lexsort((-counts, pairs[0]))]
        seen, first = np.unique(pairs[0], return_index=True)
        above = np.searchsorted(seen, codes[~learned]).clip(1, max(1, len(seen) - 1)) if len(seen) > 1 else 0
        middle = (seen[above - 1] + seen[above]) / 2
        found[~learned] = pairs[1][first[np.where(codes[~learned] > middle, above, above - 1)]]
    return found
