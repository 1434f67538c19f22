"""Small tables, and settings that fit them in a moment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

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
}


@pytest.fixture
def quick() -> dict[str, Any]:
    """Parameters of an estimator that is not meant to be good."""
    return dict(QUICK)


@pytest.fixture
def line() -> tuple[np.ndarray, np.ndarray]:
    """80 rows of two numbers, and a target that depends on the first."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 2))
    return X, 5 + 3 * X[:, 0] + 0.3 * generator.normal(size=80)


@pytest.fixture
def mixed() -> tuple[pd.DataFrame, np.ndarray]:
    """90 rows with numbers, missing values, text, a category and a boolean, and a target that depends on all."""
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
