"""Processes that tests look for."""

from __future__ import annotations

import os
import time


def gone(number: int) -> bool:
    """Return whether a process has ended, or does so within a minute."""
    for _ in range(6000):
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False
