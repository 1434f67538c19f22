"""Read files of results/, and name the machines that made them."""

from __future__ import annotations

import json
from pathlib import Path

from bayesnorm.words import format_count

ROOT = Path(__file__).parent.parent


def read(name: str) -> dict | None:
    """Return the content of a file of results/, or None if it does not exist."""
    path = ROOT / "results" / name
    return json.loads(path.read_text()) if path.exists() else None


def hardware(machine: dict) -> str:
    """Return the machine, torch version and date of a results file as text."""
    threads = f", {format_count(machine['threads'], 'thread')}" if "NVIDIA" not in machine["device"] else ""
    return f"{machine['device']}{threads}, torch {machine['torch']}, {machine['date']}"
