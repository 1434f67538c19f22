"""The command line: `bayesnorm fit`, `predict`, `report`, `bench`, `reproduce` and `data`; a file for each command."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from ..errors import MissingExtraError


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """What the console script calls; ends the process.

    Args:
        arguments: What stands behind `bayesnorm`; None takes the process's own.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not all consoles know all letters that tables hold
    try:
        from .app import run
    except MissingExtraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(run(arguments))
