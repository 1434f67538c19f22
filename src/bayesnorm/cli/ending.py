"""Run a command, print an error in one line, choose the exit code, and delay signals while files are renamed.

The exit code is 0 for success, 1 for an error, 2 for wrong usage, and 3 if `bayesnorm drift --fail-on-drift` detects
drift. It is 130 after Ctrl-C, 143 after SIGTERM, and 129 after the terminal was closed. It is 141 if the reader of
the output closes the pipe, as `head` does.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import traceback
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from bayesnorm_command import TERMINATING

from ..errors import BayesNormError, quoted, shortened
from .printing import escape_controls, standard_output

FAILED, WRONG_USAGE, DRIFTED, INTERRUPTED, UNREAD = 1, 2, 3, 130, 141


class UsageError(BayesNormError):
    """Wrong options or arguments; the exit code is 2."""


def run_commands(commands: typer.Typer, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command of an application; an error is printed in one line.

    Args:
        commands: The application. Its context object is `{"debug": False}`; True prints the traceback of an error.
        name: The name of the program.
        arguments: The arguments of the program; None takes them from `sys.argv`.

    Returns:
        The exit code.
    """
    settings: dict[str, Any] = {"debug": False}
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: _print_line(f"warning: {message}")
        try:
            _require_printable(sys.argv[1:] if arguments is None else arguments)
            code = _command(commands)(
                None if arguments is None else [*arguments], prog_name=name, standalone_mode=False, obj=settings
            )
            if code == INTERRUPTED:
                _print_line("interrupted")
            with standard_output() as out:
                out.flush()
            return int(code or 0)
        except (KeyboardInterrupt, typer.Abort):
            _print_line("interrupted")
            return INTERRUPTED
        except (Exception, SystemExit) as error:
            _discard_unwritten()
            if _is_broken_pipe(error):
                return UNREAD
            if isinstance(error, SystemExit):
                raise
            if settings["debug"]:
                print(escape_controls(traceback.format_exc(), keep="\n"), end="", file=sys.stderr)
            message, code = _explain(error, name)
            _print_line(f"error: {message}")
            return code


# Builds the command of an application once.
_command = functools.cache(typer.main.get_command)


def _require_printable(arguments: Sequence[str]) -> None:
    """Raise an error for arguments with control characters or invalid Unicode, which no output could hold later."""
    for argument in arguments:
        if any(unicodedata.category(character) in ("Cc", "Cs") and character not in "\t\n\r" for character in argument):
            raise UsageError(
                f"The argument {quoted(argument)} contains control characters or invalid Unicode. Rename the file or "
                "column."
            )


@contextlib.contextmanager
def delay_signals() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the block has ended; only the main thread receives them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[signal.Signals] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERMINATING)}
    delayed = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in delayed:
            signal.signal(number, lambda number, _: received.append(signal.Signals(number)))
        yield
    finally:
        for number, handler in delayed.items():
            signal.signal(number, handler)
        for number in received[:1]:
            signal.raise_signal(number)


def _is_broken_pipe(error: BaseException | None) -> bool:
    """Return whether a closed pipe caused an error; typer and rich turn it into an exit."""
    return error is not None and (isinstance(error, BrokenPipeError) or _is_broken_pipe(error.__context__))


def _discard_unwritten() -> None:
    """Discard output that a standard stream cannot write, so that Python does not complain at exit."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


def _explain(error: Exception, name: str) -> tuple[str, int]:
    """Return the message of an error, and the exit code."""
    if hasattr(error, "format_message"):  # an error of typer, whose class differs between its versions
        context = getattr(error, "ctx", None)
        hint = f" See {context.command_path} --help." if context is not None else ""
        return f"{error.format_message().rstrip('.')}.{hint}", WRONG_USAGE
    if isinstance(error, BayesNormError):
        return str(error), WRONG_USAGE if isinstance(error, UsageError) else FAILED
    if isinstance(error, OSError):
        file = f" ({os.fspath(error.filename)})" if error.filename is not None else ""
        return f"{error.strerror or error}{file}.", FAILED
    if isinstance(error, MemoryError):
        return "Not enough memory. Use fewer rows, or smaller images.", FAILED
    return f"Unexpected {type(error).__name__}: {error} (run {name} --debug ... to see the traceback).", FAILED


def _print_line(text: str) -> None:
    try:
        print(escape_controls(shortened(" ".join(text.split()))), file=sys.stderr)
    except OSError:  # standard error is closed
        _discard_unwritten()
