"""Files of results/, and what they were made on."""

from __future__ import annotations

import json
from pathlib import Path

from bayesnorm.report.words import count

ROOT = Path(__file__).parent.parent


def read(name: str) -> dict | None:
    """Return a file of results/, or None where it is not there."""
    path = ROOT / "results" / name
    return json.loads(path.read_text()) if path.exists() else None


def hardware(machine: dict) -> str:
    """Return the machine of a results file in words."""
    threads = f", {count(machine['threads'], 'thread')}" if "NVIDIA" not in machine["device"] else ""
    return f"{machine['device']}{threads}, torch {machine['torch']}, {machine['date']}"
