"""Student's t-test of whether a score differs from 0 over runs, with the MCBN paper's stars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats
from torch import Tensor

from bayesnorm.errors import InputError
from bayesnorm.metrics.checks import number_vector

STARS = ((1e-4, "****"), (1e-3, "***"), (1e-2, "**"), (5e-2, "*"))
"""The marks of the paper's table 1, each for p-values up to its bound; above all bounds it is "ns"."""


@dataclass(frozen=True)
class Significance:
    """Result of a two-sided one-sample t-test of a score's mean over runs."""

    mean: float
    """Mean over runs, in the score's units."""
    standard_error: float
    """Standard error of the mean: std / sqrt(runs), with runs - 1 in the std."""
    t: float
    """Student's t: mean / standard_error."""
    p_value: float
    """Probability of a |t| at least as large if the true mean were 0."""
    stars: str
    """"ns", or one to four stars; with a negative mean they mean "significantly worse"."""


def significance(values: Sequence[float] | Tensor) -> Significance:
    """Return a two-sided test of whether the mean of a score over independent runs differs from 0.

    Equal runs have standard error 0: t is then infinite and p 0, or t is 0 and p 1 if all of them are 0.

    Args:
        values: One number per run (the paper: normalised scores of 25 runs), at least two.
    """
    runs = number_vector("values", values, infinite=False).tolist()
    if len(runs) < 2:
        raise InputError(f"values has {len(runs)} run, but a t-test needs at least two. Pass more runs.")
    mean = math.fsum(runs) / len(runs)
    variance = math.fsum((run - mean) ** 2 for run in runs) / (len(runs) - 1)
    if all(run == runs[0] for run in runs):
        mean, variance = runs[0], 0.0
    standard_error = math.sqrt(variance / len(runs))
    t = mean / standard_error if standard_error else math.copysign(math.inf, mean) if mean else 0.0
    p_value = t_test_p_value(t, len(runs) - 1)
    return Significance(mean, standard_error, t, p_value, stars(p_value))


def stars(p_value: float) -> str:
    """Return the paper's mark for a p-value."""
    return next((mark for bound, mark in STARS if p_value <= bound), "ns")


def t_test_p_value(t: float, degrees: float) -> float:
    """Return P(|T| >= |t|) for Student's t."""
    return float(2 * stats.t.sf(abs(t), degrees))
