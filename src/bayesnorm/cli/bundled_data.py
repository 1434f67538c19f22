"""Tables that come with scikit-learn."""

from __future__ import annotations

import importlib.util
from typing import Any

from ..errors import MissingExtraError

# Name of each table, and scikit-learn's function that loads it; the last column is called "target".
BUNDLED = {
    "sklearn:diabetes": "load_diabetes",
    "sklearn:breast_cancer": "load_breast_cancer",
    "sklearn:iris": "load_iris",
    "sklearn:wine": "load_wine",
    "sklearn:digits": "load_digits",
}


def has_bundled() -> bool:
    """Return whether scikit-learn is installed."""
    return importlib.util.find_spec("sklearn") is not None


def load_bundled(name: str) -> Any:
    """Return a table as a data frame, in the units in which it was measured, with classes by their names.

    Args:
        name: One of `BUNDLED`.
    """
    try:
        import pandas  # noqa: F401
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError(f"{name} needs scikit-learn: pip install scikit-learn pandas.") from error
    options = {"scaled": False} if name == "sklearn:diabetes" else {}
    found = getattr(datasets, BUNDLED[name])(as_frame=True, **options)
    frame = found.frame.copy()
    if name != "sklearn:digits" and hasattr(found, "target_names"):
        frame["target"] = [str(found.target_names[number]) for number in frame["target"]]
    return frame
