"""Format means over runs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def mean_and_error(values: Sequence[float], digits: int) -> str:
    """Return the mean of some runs and its standard error, "1.25 ± 0.03"; for a single run, only the mean."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {statistics.stdev(values) / len(values) ** 0.5:.{digits}f}"
