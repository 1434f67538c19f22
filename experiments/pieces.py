"""Store parts of a long measurement in files, so that an interrupted run continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesnorm.writing import write_bytes


def measured_once(path: Path, settings: dict[str, Any], measure: Callable[[], Any]) -> Any:
    """Return a stored result with the same settings, or measure it now and store it.

    Args:
        path: The file; its folder is created if needed.
        settings: Plain values that determine the result.
        measure: Returns plain values, which come back as JSON values.
    """
    settings = json.loads(json.dumps(settings))
    if path.exists():
        stored = json.loads(path.read_text())
        if stored["settings"] == settings:
            return stored["found"]
    content = json.loads(json.dumps(measure()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, json.dumps({"settings": settings, "found": content}, indent=1).encode())
    return content
