"""How commands end: 0 fine, 1 the work failed, 2 wrong usage, 130 interrupted; an error is told in one line."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from ..errors import BayesNormError
from .usage import UsageError

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130


def run_commands(commands: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run one of an application's commands, and say in one line what went wrong.

    Args:
        commands: The application, whose context holds `{"debug": False}`; with True, an error's traceback is printed.
        name: What a user types before the arguments.
        arguments: What stands behind the name; None takes the process's own.

    Returns:
        The exit code.
    """
    settings: dict[str, Any] = {"debug": False}
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = typer.main.get_command(commands)(
                None if arguments is None else [*arguments], prog_name=name, standalone_mode=False, obj=settings
            )
            if code == INTERRUPTED:
                _tell("interrupted")
            return int(code or 0)
        except (KeyboardInterrupt, typer.Abort):
            _tell("interrupted")
            return INTERRUPTED
        except Exception as error:
            if settings["debug"]:
                traceback.print_exc()
            message, code = _explain(error, name)
            _tell(f"error: {message}")
            return code


def _explain(error: Exception, name: str) -> tuple[str, int]:
    """Return what to tell about an error, and the exit code."""
    if hasattr(error, "format_message"):  # typer's own, whose class has moved between its versions
        context = getattr(error, "ctx", None)
        hint = f"; {context.command_path} --help says more" if context is not None else ""
        return f"{error.format_message().rstrip('.')}{hint}.", WRONG_USAGE
    if isinstance(error, BayesNormError):
        return str(error), WRONG_USAGE if isinstance(error, UsageError) else FAILED
    if isinstance(error, OSError):
        file = f" ({os.fspath(error.filename)})" if error.filename is not None else ""
        return f"{error.strerror or error}{file}.", FAILED
    if isinstance(error, MemoryError):
        return "there is not enough memory; fewer rows would work.", FAILED
    return f"unexpected {type(error).__name__}: {error} ({name} --debug ... shows where).", FAILED


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    _tell(f"warning: {message}")


def _tell(text: str) -> None:
    print(" ".join(text.split()), file=sys.stderr)
