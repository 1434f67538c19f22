"""Test new rows of a table for drift: column by column, and at the layers of the network.

Columns are compared by an exact two-sample test of counts in bins. Under the null hypothesis, the new rows are a sample
without replacement from all rows. For every bin (categories) or every edge between bins (numbers), the hypergeometric
distribution gives the probability of the new count or a more extreme one. The statistic is the smallest of these
probabilities. The p-value is the probability that it is as small under the null hypothesis, summed over all possible
counts, bin by bin.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from ..shift import LEVEL, Drift, holm
from .column_types import ColumnValues, Numbers, label
from .encoded_columns import NORMAL_RANGE, DateColumn, NumericColumn, present
from .preprocessing import TableColumn
from .training_columns import CategoryCounts, Counts, NumberCounts

# With more new rows, or for smaller p-values, the Bonferroni bound replaces the exact p-value, which is smaller.
MOST_EXACT, LEAST_EXACT = 500, 1e-9


def two_sample_chance(training: Counts, new: Counts, *, ordered: bool) -> float:
    """Return the p-value of the counts of new rows, (bins,), given the counts of training rows."""
    total = training + new
    rows, n = int(total.sum()), int(new.sum())
    training, new, total = (counts[total > 0] for counts in (training, new, total))
    if n in (0, rows) or len(total) < 2:
        return 1.0
    inside, counts = (np.cumsum(total)[:-1], np.cumsum(new)[:-1]) if ordered else (total, new)
    tails = stats.hypergeom.cdf(counts, rows, inside, n), stats.hypergeom.sf(counts - 1, rows, inside, n)
    least = float(min(1.0, 2 * np.minimum(*tails).min()))
    bound = min(1.0, least * len(inside))
    if n > MOST_EXACT or bound < LEAST_EXACT:
        return bound
    likelier = _two_sided(rows, inside, n) > least * (1 + 1e-9)
    ways = np.zeros(n + 1)
    ways[0] = 1.0
    share, taken = n / rows, np.arange(n + 1)
    for place, count in enumerate(total):
        some = taken[: count + 1]
        chances = np.exp(_log_ways(count, some) + some * np.log(share) + (count - some) * np.log1p(-share))
        if not ordered:
            chances *= likelier[place, : len(chances)]
        ways = np.convolve(ways, chances)[: n + 1]
        if ordered and place < len(inside):
            ways *= likelier[place]
    less_extreme = float(ways[n] / stats.binom.pmf(n, rows, share))
    return float(np.clip(1 - less_extreme, least / 2, bound))


def _two_sided(rows: int, inside: Counts, n: int) -> NDArray[np.float64]:
    """Return the two-sided probability of each number of new rows inside, (places, n + 1)."""
    taken, column = np.arange(n + 1), inside[:, None]
    share = np.exp(_log_ways(column, taken) + _log_ways(rows - column, n - taken) - _log_ways(rows, n))
    below, above = np.cumsum(share, 1), np.cumsum(share[:, ::-1], 1)[:, ::-1]
    return 2 * np.minimum(below, above)


def _log_ways(rows: Any, some: Any) -> Any:
    """Return the logarithm of the binomial coefficient, much faster than scipy; minus infinity if it is 0."""
    impossible = (some < 0) | (some > rows)
    some = np.where(impossible, 0, some)
    logs = special.gammaln(rows + 1) - special.gammaln(some + 1) - special.gammaln(rows - some + 1)
    return np.where(impossible, -np.inf, logs)


# Number of categories, the most frequent ones in all rows, that are compared one by one.
MOST_CATEGORIES = 30

# Largest number of bins of a histogram; n rows have twice the square root of n.
MOST_BINS = 24

# The names of all other categories and of missing values in tables of shares.
OTHERS, MISSING = "(others)", "(missing)"


@dataclass(frozen=True)
class ColumnDrift:
    """The result of a drift test for one column.

    Args:
        name: The name of the column.
        kind: "number", "category" or "date"; dates are compared as days since 1970.
        p_value: The probability that a random sample of training rows of the same size differs as much in this column.
        moved: Whether the difference is statistically significant, corrected for all columns and the network.
        missing: The fraction of missing values in training, and now.
        median: The median in training, and now; None for categories, and if there is no number.
        shift: The shift of the median, in units of the spread in training (the interquartile range divided by that of
            the standard normal distribution).
        spread_ratio: The spread now, divided by the spread in training.
        shares: For each category, or each value of a column with few values, its name and its share in training and
            now.
        new_categories: Categories that do not occur in training, the most frequent first; at most 10.
        new_share: The fraction of rows with such a category.
        edges: The edges of the bins of a histogram, for numbers; the outer bins include all values beyond.
        training_shares, new_shares: The fraction of values in each bin, in training and now.
    """

    name: str
    kind: str
    p_value: float
    missing: tuple[float, float]
    moved: bool = False
    median: tuple[float, float] | None = None
    shift: float | None = None
    spread_ratio: float | None = None
    shares: tuple[tuple[str, float, float], ...] = ()
    new_categories: tuple[str, ...] = ()
    new_share: float = 0.0
    edges: tuple[float, ...] = ()
    training_shares: tuple[float, ...] = ()
    new_shares: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class TableDrift:
    """The result of a drift test for the rows of a table.

    The p-values are corrected for all columns and the network together: if the rows come from the training
    distribution, `drifted` is True, or some column has `moved`, in at most 5 % of cases.

    Args:
        p_value: The probability that a random sample of training rows of the same size differs as much.
        rows: The number of new rows.
        columns: The result for each column, in the order of the table.
        network: The result for the layers of the network; None if it has no batch statistics to compare.
        without_network: Why `network` is None, or "".
        unusual: The fraction of rows that are unusual (`uncertainty(X).unusual`); for training rows it is about 0.005.
    """

    p_value: float
    rows: int
    columns: tuple[ColumnDrift, ...]
    network: Drift | None
    without_network: str
    unusual: float

    @property
    def drifted(self) -> bool:
        """Whether the rows differ from the training rows with statistical significance (p < 0.05)."""
        return self.p_value < LEVEL

    @property
    def moved(self) -> tuple[ColumnDrift, ...]:
        """The columns with significant drift, smallest p-value first."""
        return tuple(sorted((column for column in self.columns if column.moved), key=lambda column: column.p_value))


def table_drift(
    columns: Sequence[ColumnDrift], network: Drift | None, without_network: str, unlike: np.ndarray
) -> TableDrift:
    """Combine the tests of columns and network, so that the false-alarm rate holds for both together."""
    sides = 1 + (network is not None)
    adjusted = holm([column.p_value for column in columns]) * sides
    tested = (replace(column, moved=bool(p < LEVEL)) for column, p in zip(columns, adjusted, strict=True))
    best = min(1.0, float(adjusted.min()))
    p_value = best if network is None else min(best, network.p_value * sides)
    return TableDrift(p_value, len(unlike), tuple(tested), network, without_network, float(np.mean(unlike)))


def column_drift(column: TableColumn, training: NumberCounts | CategoryCounts, values: ColumnValues) -> ColumnDrift:
    """Compare a column of new rows with the same column in training."""
    if isinstance(training, CategoryCounts):
        return _category_drift(column.name, training, [None if value is None else str(value) for value in values])
    if isinstance(column, DateColumn):
        # Shares of single dates carry no information.
        return replace(_number_drift(column.trend, training, values), kind="date", shares=())
    assert isinstance(column, NumericColumn)
    return _number_drift(column, training, values)


def _number_drift(column: NumericColumn, training: NumberCounts, values: Numbers) -> ColumnDrift:
    numbers, before = present(values), np.array(training.counts)
    counts, gaps, rows = training.count(numbers), len(values) - len(numbers), int(before.sum())
    p_value = two_sample_chance(before, counts, ordered=True)
    if gaps + training.missing:
        missing = np.array([rows, training.missing]), np.array([len(numbers), gaps])
        p_value = min(1.0, 2 * min(p_value, two_sample_chance(*missing, ordered=True)))
    shares = _share(training.missing, rows + training.missing), _share(gaps, len(values))
    drift = ColumnDrift(column.name, "number", p_value, shares)
    if column.centre is None or not len(numbers):
        return drift
    details = {"shares": _value_shares(training, counts)} if training.single else _histograms(training, numbers)
    low, middle, high = (float(q) for q in np.quantile(numbers, [0.25, 0.5, 0.75]))
    scaled = column.scale > 0
    return replace(
        drift,
        median=(column.centre, middle),
        shift=(middle - column.centre) / column.scale if scaled else None,
        spread_ratio=(high - low) / NORMAL_RANGE / column.scale if scaled and len(numbers) > 1 else None,
        **details,
    )


def _value_shares(training: NumberCounts, counts: np.ndarray) -> tuple[tuple[str, float, float], ...]:
    """Return the shares of single values, and of all other values."""
    names = [*map(label, training.edges[1::2]), OTHERS]
    before, now = (np.append(bins[1::2], bins[::2].sum()) for bins in (np.array(training.counts), counts))
    shares = zip(names, (before / before.sum()).tolist(), (now / now.sum()).tolist(), strict=True)
    return tuple((name, a, b) for name, a, b in shares if a + b)


def _histograms(training: NumberCounts, numbers: Numbers) -> dict[str, tuple[float, ...]]:
    """Return edges of bins of equal width, and the shares of training values and new values in each bin."""
    low, high = np.quantile(numbers, [0.02, 0.98])
    bins = int(np.clip(2 * math.sqrt(len(numbers)), 6, MOST_BINS))
    edges = np.linspace(min(low, training.edges[0]), max(high, training.edges[-1]), bins + 1)
    up_to = np.cumsum(training.counts)[:-1] / sum(training.counts)
    first, span = training.edges[0], (training.edges[-1] - training.edges[0]) or 1.0  # prevents overflow
    places = [(at - first) / span for at in training.edges]
    inner = np.interp((edges[1:-1] - first) / span, places, up_to, left=0.0, right=1.0)
    shares = np.diff(inner, prepend=0.0, append=1.0)
    new_shares = np.bincount(np.searchsorted(edges[1:-1], numbers), minlength=bins) / len(numbers)
    parts = {"edges": edges, "training_shares": shares, "new_shares": new_shares}
    return {name: tuple(part.tolist()) for name, part in parts.items()}


def _category_drift(name: str, training: CategoryCounts, values: list[str | None]) -> ColumnDrift:
    new = Counter(values)
    before: Counter[str | None] = Counter(training.counts)
    before[None] = training.missing
    total = before + new
    # Choose categories by their totals alone. Their names could separate new rows from training rows, for example ids.
    cut = sorted(total.values(), reverse=True)[MOST_CATEGORIES] if len(total) > MOST_CATEGORIES else 0
    often = [category for category in total if total[category] > cut]
    shown = sorted(often, key=lambda category: (-total[category], category is None, category or ""))
    rest = [category for category in total if total[category] <= cut]
    counts = [[part[category] for category in shown] + [sum(part[c] for c in rest)] for part in (before, new)]
    rows = sum(before.values())
    names = [MISSING if category is None else category for category in shown] + [OTHERS]
    unseen = [category for category, _ in new.most_common() if category is not None and not before[category]]
    return ColumnDrift(
        name,
        "category",
        two_sample_chance(*map(np.array, counts), ordered=False),
        (_share(training.missing, rows), _share(new[None], len(values))),
        shares=tuple(
            (text, _share(a, rows), _share(b, len(values))) for text, a, b in zip(names, *counts, strict=True) if a + b
        ),
        new_categories=tuple(unseen[:10]),
        new_share=_share(sum(new[category] for category in unseen), len(values)),
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
