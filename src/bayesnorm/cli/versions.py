"""Versions of this package and of those that it stands on, and the machine it runs on."""

from __future__ import annotations

import contextlib
import platform
import sys
from importlib.metadata import version
from pathlib import Path


def own_version() -> str:
    """Return the version of bayesnorm, which is loaded whenever this is called."""
    return str(sys.modules["bayesnorm"].__version__)


def all_versions() -> dict[str, str]:
    """Return the versions of all that a trained model depends on, by name."""
    others = {name: version(name) for name in ("torch", "numpy", "pandas", "scikit-learn")}
    return {"bayesnorm": own_version(), **others, "python": platform.python_version()}


def cpu_name() -> str:
    """Return the name of the processor, in the words of the operating system."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
