"""How commands end, with an error told in one line.

The exit code is 0 if all went well, 1 if the work failed, 2 for wrong usage, 3 if `bayesnorm drift --fail-on-drift`
found a drift, 130 after Ctrl-C, 143 after SIGTERM, and 129 if the terminal was closed. It is 141 if whoever read the
output stopped reading, as `head` does: as of a program that SIGPIPE ended.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import typer

from ..errors import BayesNormError, shortened
from .printing import standard_output
from .usage import UsageError

FAILED, WRONG_USAGE, DRIFTED, INTERRUPTED, UNREAD = 1, 2, 3, 130, 141


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
            with standard_output() as out:
                out.flush()
            return int(code or 0)
        except (KeyboardInterrupt, typer.Abort):
            _tell("interrupted")
            return INTERRUPTED
        except (Exception, SystemExit) as error:
            _drop_unwritten()
            if _is_broken_pipe(error):
                return UNREAD
            if isinstance(error, SystemExit):
                raise
            if settings["debug"]:
                traceback.print_exc()
            message, code = _explain(error, name)
            _tell(f"error: {message}")
            return code


def _is_broken_pipe(error: BaseException | None) -> bool:
    """Return whether an error came of output that nobody reads; typer and rich turn it into an exit."""
    return error is not None and (isinstance(error, BrokenPipeError) or _is_broken_pipe(error.__context__))


def _drop_unwritten() -> None:
    """Send nowhere what a standard stream holds and cannot write, lest Python complain of it as it ends."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


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
    try:
        print(shortened(" ".join(text.split())), file=sys.stderr)
    except OSError:  # nobody reads it any more
        _drop_unwritten()
