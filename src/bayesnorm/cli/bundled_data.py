"""Tables that come with scikit-learn."""

from __future__ import annotations

import importlib.util
from typing import Any

from ..errors import MissingExtraError

BUNDLED = {
    "sklearn:diabetes": "load_diabetes",
    "sklearn:breast_cancer": "load_breast_cancer",
    "sklearn:iris": "load_iris",
    "sklearn:wine": "load_wine",
    "sklearn:digits": "load_digits",
}
"""Names, and scikit-learn's loader of each; the last column is called "target", classes by their names."""


def has_bundled() -> bool:
    """Whether scikit-learn is installed."""
    return importlib.util.find_spec("sklearn") is not None


def load_bundled(name: str) -> Any:
    """A data frame, in the units in which it was measured.

    Args:
        name: One of `BUNDLED`.
    """
    try:
        import pandas  # noqa: F401
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError(f"{name} needs scikit-learn: pip install 'bayesnorm[tabular]'.") from error
    options = {"scaled": False} if name == "sklearn:diabetes" else {}
    found = getattr(datasets, BUNDLED[name])(as_frame=True, **options)
    frame = found.frame.copy()
    if name != "sklearn:digits" and hasattr(found, "target_names"):
        frame["target"] = [str(found.target_names[number]) for number in frame["target"]]
    return frame
