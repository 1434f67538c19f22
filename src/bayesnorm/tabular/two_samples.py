"""An exact test of whether the counts of two samples in the same bins come from one distribution.

Under the null hypothesis, the new rows are a sample without replacement from all rows. For every bin (categories) or
every edge between bins (numbers), the hypergeometric distribution gives the probability of the new count or a more
extreme one. The statistic is the smallest of these probabilities. The p-value is the probability that it is as small
under the null hypothesis, summed over all possible counts, bin by bin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Counts = NDArray[np.int64]

# With more new rows, or for smaller p-values, the Bonferroni bound replaces the exact p-value, which is smaller.
MOST_EXACT, LEAST_EXACT = 500, 1e-9


def two_sample_chance(training: Counts, new: Counts, *, ordered: bool) -> float:
    """Return the p-value of the counts of new rows, (bins,), given the counts of training rows."""
    total = training + new
    rows, n = int(total.sum()), int(new.sum())
    training, new, total = (counts[total > 0] for counts in (training, new, total))
    if n in (0, rows) or len(total) < 2:
        return 1.0
    inside, found = (np.cumsum(total)[:-1], np.cumsum(new)[:-1]) if ordered else (total, new)
    tails = stats.hypergeom.cdf(found, rows, inside, n), stats.hypergeom.sf(found - 1, rows, inside, n)
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
        own = np.exp(_log_ways(count, some) + some * np.log(share) + (count - some) * np.log1p(-share))
        if not ordered:
            own *= likelier[place, : len(own)]
        ways = np.convolve(ways, own)[: n + 1]
        if ordered and place < len(inside):
            ways *= likelier[place]
    kept = float(ways[n] / stats.binom.pmf(n, rows, share))
    return float(np.clip(1 - kept, least / 2, bound))


def _two_sided(rows: int, inside: Counts, n: int) -> NDArray[np.float64]:
    """Return the two-sided probability of each number of new rows inside, (places, n + 1)."""
    taken, column = np.arange(n + 1), inside[:, None]
    share = np.exp(_log_ways(column, taken) + _log_ways(rows - column, n - taken) - _log_ways(rows, n))
    below, above = np.cumsum(share, 1), np.cumsum(share[:, ::-1], 1)[:, ::-1]
    return 2 * np.minimum(below, above)


def _log_ways(of: Any, some: Any) -> Any:
    """Return the logarithm of the binomial coefficient; minus infinity if it is 0."""
    impossible = (some < 0) | (some > of)
    some = np.where(impossible, 0, some)
    logs = special.gammaln(of + 1) - special.gammaln(some + 1) - special.gammaln(of - some + 1)
    return np.where(impossible, -np.inf, logs)
