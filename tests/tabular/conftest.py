"""Small tables, and settings that fit them in a moment."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bayesnorm.tabular import BayesNormRegressor

QUICK: dict[str, Any] = {
    "encoding": "plain",
    "hidden": (10,),
    "weight_decay": 0.01,
    "learning_rate": 1e-2,
    "folds": 2,
    "members": 2,
    "max_epochs": 12,
    "samples": 8,
    "effective_batch_size": None,
    "random_state": 0,
    "networks_only": True,
}


@pytest.fixture
def quick() -> dict[str, Any]:
    """Parameters of an estimator that is not meant to be good."""
    return dict(QUICK)


def line_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return 80 rows of two numbers, and a target that depends on the first."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 2))
    return X, 5 + 3 * X[:, 0] + 0.3 * generator.normal(size=80)


def mixed_rows() -> tuple[pd.DataFrame, np.ndarray]:
    """Return 90 rows with numbers, missing values, text, a category and a boolean, and a target that depends on all."""
    generator = np.random.default_rng(1)
    rows = 90
    size, town = generator.normal(50, 20, rows), generator.choice(["ash", "birch", "elm"], rows)
    grade, new = generator.integers(1, 4, rows), generator.random(rows) < 0.5
    frame = pd.DataFrame(
        {
            "size": np.where(generator.random(rows) < 0.1, np.nan, size),
            "town": pd.Series(town, dtype=object),
            "grade": pd.Categorical(grade),
            "new": new,
        }
    )
    y = size / 20 + 2 * (town == "elm") + grade + new + 0.1 * generator.normal(size=rows)
    return frame, y


@pytest.fixture
def line() -> tuple[np.ndarray, np.ndarray]:
    """The rows of `line_rows`."""
    return line_rows()


@pytest.fixture
def mixed() -> tuple[pd.DataFrame, np.ndarray]:
    """The rows of `mixed_rows`."""
    return mixed_rows()


@functools.cache
def line_model() -> BayesNormRegressor:
    """Return an estimator fitted to `line_rows`, which all tests share and none changes."""
    return BayesNormRegressor(**QUICK).fit(*line_rows())


@functools.cache
def mixed_model(method: str = "mcbn") -> BayesNormRegressor:
    """Return an estimator of a method fitted to `mixed_rows`, which all tests share and none changes."""
    return BayesNormRegressor(**QUICK, method=method).fit(*mixed_rows())
