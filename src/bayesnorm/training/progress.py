"""A bar for `progress=`: rich's where that is installed, else one line that is written over."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from ..network import Progress


@contextlib.contextmanager
def progress_bar(label: str = "training") -> Iterator[Progress]:
    """Show a bar on standard error while the block lasts, and give what tells it how far things are.

        with progress_bar("ensemble") as bar:
            train(model, x, y, ..., progress=bar)

    Args:
        label: The words before the bar.
    """
    with contextlib.ExitStack() as stack:
        try:
            from rich.console import Console
            from rich.progress import Progress as Bars
        except ImportError:
            yield stack.enter_context(_plain_line(label))
        else:
            bars = stack.enter_context(Bars(console=Console(stderr=True)))
            task = bars.add_task(label, total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)


@contextlib.contextmanager
def _plain_line(label: str) -> Iterator[Progress]:
    """Do the same with a line of text, where somebody could see it."""
    shown = sys.stderr.isatty()

    def tell(done: int, total: int) -> None:
        if shown:
            print(f"\r{label}: {done}/{total}", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        if shown:
            print(file=sys.stderr)
