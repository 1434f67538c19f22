"""Versions of this package and of those that it stands on."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version


def own_version() -> str:
    """Of bayesnorm, which is loaded whenever this is called."""
    return str(sys.modules["bayesnorm"].__version__)


def all_versions() -> dict[str, str]:
    """Of all that a trained model depends on."""
    others = {name: version(name) for name in ("torch", "numpy", "pandas", "scikit-learn")}
    return {"bayesnorm": own_version(), **others, "python": platform.python_version()}
