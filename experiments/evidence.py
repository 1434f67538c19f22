"""What experiments leave behind: numbers, with the machine that they were made on, and pictures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bayesnorm.files import write_bytes
from bayesnorm.plots import save_figure

from .machine import machine

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write_numbers(path: Path, content: Mapping[str, Any], device: str = "cpu") -> None:
    """Write an experiment's numbers as JSON, under a head that names the machine.

    Args:
        path: The file; its folder is made if it is not there.
        content: Plain values.
        device: Where they were computed, "cpu" or "cuda".
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, json.dumps({"machine": machine(device), **content}, indent=1).encode())


def write_picture(path: Path, picture: Axes | Figure) -> None:
    """Write a picture as PNG, and print its path.

    Args:
        path: The file; its folder is made if it is not there.
        picture: Axes, whose whole figure is meant, or a figure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    save_figure(picture, path)
    print(path)


def show_progress(text: str) -> None:
    """Write what is being computed over the line that said so before."""
    print(f"\r\033[K{text}", end="", flush=True)
