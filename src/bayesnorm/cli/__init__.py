"""The command line: `bayesnorm fit`, `predict`, `report` and `data`; a file for each command."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from typing import NoReturn


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `bayesnorm` and end the process; the console script calls this.

    Args:
        arguments: What stands behind `bayesnorm`; None takes the process's own.
    """
    end_with("bayesnorm.cli.app", arguments)


def end_with(module: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the commands of a module and end the process with their exit code.

    Args:
        module: Name of a module with a function `run(arguments)` that returns the exit code. It is imported only
            here, so that an extra that is missing is told in one line.
        arguments: What stands behind the program's name; None takes the process's own.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not all consoles know all letters that tables hold
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print("error: the command line needs typer and rich: pip install 'bayesnorm[cli]'.", file=sys.stderr)
        sys.exit(1)
    sys.exit(importlib.import_module(module).run(arguments))
