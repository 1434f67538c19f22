"""A progress bar with the remaining time for `progress=`, by rich if it is installed, otherwise as plain text."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from ..network import Progress


@contextlib.contextmanager
def progress_bar(label: str = "training") -> Iterator[Progress]:
    """Show a progress bar on standard error, or below the cell in a notebook; yield a function for `progress=`.

        with progress_bar("ensemble") as bar:
            train(model, x, y, ..., progress=bar)

    Args:
        label: The text before the bar.
    """
    with contextlib.ExitStack() as stack:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress as Bars, TaskProgressColumn, TextColumn, TimeRemainingColumn
        except ImportError:
            yield stack.enter_context(_plain_line(label))
        else:
            left = TimeRemainingColumn(elapsed_when_finished=True)  # a full bar shows the elapsed time
            columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), left
            word = TextColumn("{task.fields[word]}")
            bars = stack.enter_context(Bars(*columns, word, console=Console(stderr=True)))
            task = bars.add_task(label, total=None, word="")

            def tell(done: int, total: int) -> None:
                bars.update(task, completed=done, total=total, word="" if done >= total else "left")

            yield tell


@contextlib.contextmanager
def _plain_line(label: str) -> Iterator[Progress]:
    """Show progress as a line of text, if standard error is a terminal."""
    shown, started, width = sys.stderr.isatty(), time.monotonic(), 0

    def tell(done: int, total: int) -> None:
        nonlocal width
        if shown:
            line = f"{label}: {done}/{total}{_time_left(time.monotonic() - started, done, total)}"
            width = max(width, len(line))  # overwrites the rest of a longer line
            print(f"\r{line:<{width}}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if shown:
            print(file=sys.stderr)


def _time_left(elapsed: float, done: int, total: int) -> str:
    """Return the remaining time at the average speed so far; "" before the first step is done."""
    if not 0 < done < total:
        return ""
    seconds = round(elapsed / done * (total - done))
    return f", {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"
