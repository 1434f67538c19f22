"""Write results of experiments: numbers with a description of the machine, and plots."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesnorm.plots import save_figure
from bayesnorm.writing import write_bytes

from .machine import machine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write_numbers(path: Path, content: Mapping[str, Any], device: str = "cpu") -> None:
    """Write an experiment's numbers as JSON, with a header that describes the machine.

    Args:
        path: The file; its folder is created if needed.
        content: Plain values.
        device: Where they were computed, "cpu" or "cuda".
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, json.dumps({"machine": machine(device), **content}, indent=1).encode())


def write_picture(path: Path, picture: Axes | Figure) -> None:
    """Write a plot as PNG, and print its path.

    Args:
        path: The file; its folder is created if needed.
        picture: A figure, or axes of the figure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(picture, path)
    print(path)


def show_progress(text: str) -> None:
    """Write a progress message over the previous one."""
    print(f"\r\033[K{text}", end="", flush=True)
