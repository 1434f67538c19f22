"""Progress bars with the remaining time: with rich if it is installed, otherwise as plain text."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

Progress = Callable[[int, int], None]
"""A function of (done, total)."""

# Seconds before `long_progress` shows a bar.
QUIET_SECONDS = 2.0

_shown = threading.Lock()  # held while `long_progress` runs, so that what it calls shows no second bar


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
                # 0 stands for a total that is unknown, such as that of a generator.
                bars.update(task, completed=done, total=total or None, word="" if done >= total else "left")

            yield tell


@contextlib.contextmanager
def long_progress(label: str) -> Iterator[Progress]:
    """Show a progress bar once the block has taken two seconds; yield the function to call with (done, total).

    It needs rich and a terminal or a notebook; otherwise nothing is shown. Inside another such block nothing is shown.

        with long_progress("calibrate") as tell:
            for done, candidate in enumerate(candidates):
                tell(done, len(candidates))

    Args:
        label: The text before the bar.
    """
    if not _shown.acquire(blocking=False):
        yield lambda done, total: None
        return
    started, bars = time.monotonic(), list[Progress]()
    with contextlib.ExitStack() as stack:
        stack.callback(_shown.release)

        def tell(done: int, total: int) -> None:
            late = time.monotonic() - started >= QUIET_SECONDS
            if not bars and late and not 0 < total <= done and _can_show():
                bars.append(stack.enter_context(progress_bar(label)))
            for bar in bars:
                bar(done, total)

        yield tell


def _can_show() -> bool:
    """Return whether rich is installed and can redraw a line, in a terminal or a notebook."""
    try:
        from rich.console import Console
    except ImportError:
        return False
    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


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
