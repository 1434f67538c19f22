"""Time and memory of a call, for experiments and benchmarks."""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")


def timed(call: Callable[[], Result]) -> tuple[float, Result]:
    """Return the seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def median_seconds(call: Callable[[], Result], repeats: int) -> tuple[float, Result]:
    """Return the median seconds of some calls, after one to warm up, and the result of the last."""
    call()
    runs = [timed(call) for _ in range(repeats)]
    return statistics.median(seconds for seconds, _ in runs), runs[-1][1]


def with_added_mib(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return a call's result, and the MiB that it adds to the process at its peak; NaN if the system is not Linux."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # freed memory must not hide new allocations
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = resident_mib()
    except (OSError, AttributeError):
        return call(), math.nan
    result = call()
    return result, max(0.0, _status_mib("VmHWM") - before)


def resident_mib() -> float:
    """Return the MiB of memory that this process uses now."""
    return _status_mib("VmRSS")


def _status_mib(field: str) -> float:
    return float(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024
