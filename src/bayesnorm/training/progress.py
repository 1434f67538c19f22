"""A bar with the time left for `progress=`: rich's where that is installed, else one line that is written over."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from ..network import Progress


@contextlib.contextmanager
def progress_bar(label: str = "training") -> Iterator[Progress]:
    """Show a bar on standard error, in a notebook below its cell, and give what tells it how far things are.

        with progress_bar("ensemble") as bar:
            train(model, x, y, ..., progress=bar)

    Args:
        label: The words before the bar.
    """
    with contextlib.ExitStack() as stack:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress as Bars, TaskProgressColumn, TextColumn, TimeRemainingColumn
        except ImportError:
            yield stack.enter_context(_plain_line(label))
        else:
            # Of a bar that is full, the time that it took.
            left = TimeRemainingColumn(elapsed_when_finished=True)
            shown = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                left,
                TextColumn("{task.fields[word]}"),
            )
            bars = stack.enter_context(Bars(*shown, console=Console(stderr=True)))
            task = bars.add_task(label, total=None, word="")

            def tell(done: int, total: int) -> None:
                bars.update(task, completed=done, total=total, word="" if done >= total else "left")

            yield tell


@contextlib.contextmanager
def _plain_line(label: str) -> Iterator[Progress]:
    """Do the same with a line of text, where somebody could see it."""
    shown, started, width = sys.stderr.isatty(), time.monotonic(), 0

    def tell(done: int, total: int) -> None:
        nonlocal width
        if shown:
            line = f"{label}: {done}/{total}{_time_left(time.monotonic() - started, done, total)}"
            width = max(width, len(line))  # what a longer line left behind is written over
            print(f"\r{line:<{width}}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if shown:
            print(file=sys.stderr)


def _time_left(elapsed: float, done: int, total: int) -> str:
    """Say how long the rest takes at the pace so far; "" before anything is done."""
    if not 0 < done < total:
        return ""
    seconds = round(elapsed / done * (total - done))
    return f", {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"
