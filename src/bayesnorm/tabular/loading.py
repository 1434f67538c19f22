"""Load a fitted estimator from a file that its `save` wrote."""

from __future__ import annotations

import os
from typing import Any

from .classifier import BayesNormClassifier
from .model_file import read_estimator
from .regressor import BayesNormRegressor


def load(path: str | os.PathLike[str]) -> Any:
    """Return the fitted `BayesNormRegressor` or `BayesNormClassifier` in a file that its `save` wrote.

    Args:
        path: The file.
    """
    return read_estimator(path, {kind.__name__: kind for kind in (BayesNormRegressor, BayesNormClassifier)})
