"""Student's t-test against SciPy and the paper's tables 1 and 4."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from experiments.significance import significance, stars, t_test_p_value

# Teye et al. 2018: mean and standard error of normalised scores over 25 runs, p-value (tables 4, 5), stars (table 1).
PAPER = [
    (8.50, 0.86, 6.39e-10, "****"),
    (0.24, 0.05, 2.32e-04, "***"),
    (0.26, 0.07, 1.26e-03, "**"),
    (-56.39, 14.27, 5.94e-04, "***"),
    (0.93, 0.41, 3.13e-02, "*"),
    (1.37, 0.89, 1.38e-01, "ns"),
    (21.42, 2.99, 2.16e-07, "****"),
    (-36.36, 12.12, 6.19e-03, "**"),
    (1.68, 0.37, 1.29e-04, "***"),
    (-14.28, 5.15, 1.06e-02, "*"),
    (6.23, 0.19, 2.57e-21, "****"),
]


def runs(mean: float, standard_error: float, number: int = 25) -> list[float]:
    """Numbers with exactly that mean and standard error."""
    values = torch.linspace(-1, 1, number, dtype=torch.float64)
    return (mean + standard_error * math.sqrt(number) * values / values.std()).tolist()


def test_the_papers_table():
    for mean, standard_error, p_value, mark in PAPER:
        found = significance(runs(mean, standard_error))
        assert found.mean == pytest.approx(mean)
        assert found.standard_error == pytest.approx(standard_error)
        assert found.p_value == pytest.approx(stats.ttest_1samp(runs(mean, standard_error), 0).pvalue, rel=1e-9)
        assert stars(p_value) == mark
        # The table's mean and standard error are rounded to 0.005; the p-value must lie between what that allows.
        low, high = (
            t_test_p_value((abs(mean) + sign * 0.0051) / (standard_error - sign * 0.0051), 24) for sign in (1, -1)
        )
        assert low <= p_value <= high
