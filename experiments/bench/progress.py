"""A progress bar for runs of many units, with speed and remaining time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta

from bayesnorm.network import Progress
from bayesnorm.progress import progress_bar


@contextlib.contextmanager
def unit_bar(label: str = "units") -> Iterator[Progress]:
    """Show a bar on standard error while the block lasts, rich's where that is installed.

        with unit_bar("uci") as bar:
            run_local(units, store, progress=bar)

    Args:
        label: What stands before the bar.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bars, TextColumn
    except ImportError:
        with progress_bar(label) as plain:
            yield plain
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[pace]}"))
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task(label, total=None, pace="")
        first: list[tuple[int, float]] = []

        def tell(done: int, total: int) -> None:
            now = time.monotonic()
            first[:] = first or [(done, now)]  # existing units say nothing about the speed
            before, started = first[0]
            bars.update(task, completed=done, total=total, pace=pace(done - before, total - done, now - started))

        yield tell


def pace(done: int, left: int, seconds: float) -> str:
    """Return a text with the speed and the remaining time.

    Args:
        done: Units since the start.
        left: Units that remain.
        seconds: Time since the start.
    """
    if done <= 0 or seconds <= 0:
        return ""
    rate = done / seconds
    name, per = next(((name, per) for name, per in (("s", 1), ("min", 60)) if rate * per >= 1), ("h", 3600))
    return f"{rate * per:.1f}/{name}, {timedelta(seconds=round(left / rate))} left"
