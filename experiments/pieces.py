"""Pieces of a long measurement, each kept as a file as soon as it is there: a run that was killed goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesnorm.files import write_bytes


def measured_once(path: Path, settings: dict[str, Any], measure: Callable[[], Any]) -> Any:
    """Return what was measured before under the same settings, or measure it now and keep it.

    Args:
        path: The file; its folder is made if it is not there.
        settings: Plain values that decide what is found.
        measure: Returns plain values; they come back as JSON has them.
    """
    settings = json.loads(json.dumps(settings))
    if path.exists():
        kept = json.loads(path.read_text())
        if kept["settings"] == settings:
            return kept["found"]
    found = json.loads(json.dumps(measure()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, json.dumps({"settings": settings, "found": found}, indent=1).encode())
    return found
