"""Counts and censoring flags are recognised, and other targets are not taken for them."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn: pip install scikit-learn pandas")

import pandas as pd

from bayesnorm.cli.options import Task
from bayesnorm.cli.target_hints import is_count, target_words

GENERATOR = np.random.default_rng(0)
FLAG = GENERATOR.integers(0, 2, 200).astype(float)


@pytest.mark.parametrize(
    ("y", "counts"),
    [
        (GENERATOR.poisson(3, 200), True),
        (GENERATOR.negative_binomial(1, 0.05, 200), True),
        (1 + GENERATOR.poisson(5, 200), True),
        (GENERATOR.poisson(3, 200) + 0.5, False),
        (GENERATOR.poisson(3, 200) - 4, False),
        (GENERATOR.integers(0, 10**6, 200), False),  # amounts in whole units
        (1000 + GENERATOR.poisson(3, 200), False),
        (GENERATOR.normal(size=200), False),
    ],
)
def test_counts(y, counts):
    assert is_count(y.astype(float)) == counts
    said = target_words("visits", y.astype(float), pd.DataFrame({"x": FLAG}), Task.regression)
    assert said == [f"visits is a count: whole numbers from {y.min():,} to {y.max():,}. Its predictions are decimal "
                    "numbers, which stand for averages."] * counts  # fmt: skip
    assert target_words("visits", y, pd.DataFrame({"x": FLAG}), Task.classification) == []


@pytest.mark.parametrize(
    ("target", "column", "values", "flagged"),
    [
        ("days", "censored", FLAG, True),
        ("score", "is_censored", FLAG, True),
        ("survival_time", "event", FLAG, True),
        ("survivalDays", "status", np.where(FLAG > 0, "dead", "alive").astype(object), True),
        ("price", "status", FLAG, False),  # no time
        ("days", "status", GENERATOR.integers(0, 5, 200).astype(float), False),  # more than two values
        ("days", "treated", FLAG, False),
    ],
)
def test_censoring(target, column, values, flagged):
    inputs = pd.DataFrame({"x": GENERATOR.normal(size=200), column: values})
    said = target_words(target, GENERATOR.exponential(9.3, 200), inputs, Task.regression)
    assert [line.startswith(f"{column} may say whether {target} was cut off") for line in said] == [True] * flagged
