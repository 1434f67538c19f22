"""What a claim of a paper is: the words, the rule that judges them, and the measurement."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

HOLDS, PARTLY, FAILS = "holds", "partly", "does not hold"

LEVEL = 0.05
"""Level of the paired t-tests over seeds."""

Numbers = dict[str, Any]
"""Plain values of one seed."""


@dataclass(frozen=True)
class Verdict:
    """How a claim is judged.

    Args:
        word: `HOLDS`, `PARTLY` or `FAILS`.
        evidence: The numbers behind it, in a sentence.
    """

    word: str
    evidence: str


@dataclass(frozen=True)
class Claim:
    """A claim that a small experiment can test.

    Args:
        name: Short name, for the command.
        source: The paper or lecture.
        text: The claim.
        rule: When it holds, in words; it was written before the numbers.
        measure: Returns the numbers of a seed.
        judge: Applies the rule to the numbers of all seeds.
    """

    name: str
    source: str
    text: str
    rule: str
    measure: Callable[[int], Numbers]
    judge: Callable[[Sequence[Numbers]], Verdict]


def column(runs: Sequence[Numbers], *keys: str) -> list[float]:
    """Return one number of every seed, by its keys from the outside in."""
    values = []
    for run in runs:
        value: Any = run
        for key in keys:
            value = value[key]
        values.append(float(value))
    return values


def mean(runs: Sequence[Numbers], *keys: str) -> float:
    """Return the mean over seeds of one number."""
    return statistics.fmean(column(runs, *keys))


def p_value(values: Sequence[float]) -> float:
    """Return the p-value of a two-sided t-test of paired differences against 0; 1 if they do not vary or are few."""
    if len(values) < 2 or float(np.ptp(values)) == 0:
        return 1.0
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def significantly_above(values: Sequence[float]) -> bool:
    """Return whether paired differences are above 0 on average, at `LEVEL`."""
    return statistics.fmean(values) > 0 and p_value(values) <= LEVEL
