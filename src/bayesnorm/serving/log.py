"""Lines of JSON on standard error."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any


def write_log(entry: dict[str, Any]) -> None:
    """Write a line of JSON, with the time."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
    with contextlib.suppress(OSError, ValueError):  # nobody reads it
        sys.stderr.write(json.dumps({"time": stamp, **entry}) + "\n")
