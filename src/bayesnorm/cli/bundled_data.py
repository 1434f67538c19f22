"""Example tables that are part of scikit-learn."""

from __future__ import annotations

from typing import Any

from ..errors import MissingExtraError

# The name of each table, and the scikit-learn function that loads it. The last column is called "target".
BUNDLED = {
    "sklearn:diabetes": "load_diabetes",
    "sklearn:breast_cancer": "load_breast_cancer",
    "sklearn:iris": "load_iris",
    "sklearn:wine": "load_wine",
    "sklearn:digits": "load_digits",
}


def load_bundled(name: str) -> Any:
    """Return a table as a data frame, in its original units and with class names instead of class numbers.

    Args:
        name: One of `BUNDLED`.
    """
    try:
        import pandas  # noqa: F401
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtraError(
            f"{name} needs scikit-learn and pandas. Run: pip install scikit-learn pandas"
        ) from error
    options = {"scaled": False} if name == "sklearn:diabetes" else {}
    found = getattr(datasets, BUNDLED[name])(as_frame=True, **options)
    frame = found.frame.copy()
    if name != "sklearn:digits" and hasattr(found, "target_names"):
        frame["target"] = [str(found.target_names[number]) for number in frame["target"]]
    return frame
