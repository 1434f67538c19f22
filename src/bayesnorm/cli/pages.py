"""What all HTML pages need: the packages that write them, and the versions, processor and date that they state."""

from __future__ import annotations

import contextlib
import importlib.util
import platform
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

WITHOUT_PAGE = "not written (pip install jinja2 matplotlib)"
"""Printed in place of a page's name."""


def can_write_pages() -> bool:
    """Return whether the packages for HTML pages are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("jinja2", "matplotlib"))


def provenance_facts(command: str) -> dict[str, Any]:
    """Return the fields of `report.Provenance`: versions, hardware, date and command.

    Args:
        command: The command that creates the same page again.
    """
    date = datetime.now().astimezone().date().isoformat()
    return {"versions": package_versions(), "hardware": cpu_name(), "date": date, "command": command}


def bayesnorm_version() -> str:
    """Return the version of bayesnorm."""
    return str(sys.modules["bayesnorm"].__version__)


def package_versions() -> dict[str, str]:
    """Return the versions of all packages that a trained model depends on, by name."""
    others = {name: version(name) for name in ("torch", "numpy", "pandas", "scikit-learn")}
    return {"bayesnorm": bayesnorm_version(), **others, "python": platform.python_version()}


def cpu_name() -> str:
    """Return the name of the processor, as the operating system reports it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
