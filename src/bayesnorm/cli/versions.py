"""The versions of this package and of its dependencies, and the name of the processor."""

from __future__ import annotations

import contextlib
import platform
import sys
from importlib.metadata import version
from pathlib import Path


def own_version() -> str:
    """Return the version of bayesnorm."""
    return str(sys.modules["bayesnorm"].__version__)


def all_versions() -> dict[str, str]:
    """Return the versions of all packages that a trained model depends on, by name."""
    others = {name: version(name) for name in ("torch", "numpy", "pandas", "scikit-learn")}
    return {"bayesnorm": own_version(), **others, "python": platform.python_version()}


def cpu_name() -> str:
    """Return the name of the processor, as the operating system reports it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
