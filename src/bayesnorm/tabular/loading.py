"""Fitted estimators read back from the files that their `save` wrote."""

from __future__ import annotations

import os
from typing import Any

from .classifier import BayesNormClassifier
from .model_file import read_estimator
from .regressor import BayesNormRegressor


def load(path: str | os.PathLike[str]) -> Any:
    """Read a fitted `BayesNormRegressor` or `BayesNormClassifier` that its `save` wrote; it predicts the same."""
    return read_estimator(path, {kind.__name__: kind for kind in (BayesNormRegressor, BayesNormClassifier)})
