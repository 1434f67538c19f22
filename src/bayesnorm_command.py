"""Start the command `bayesnorm`, so that Ctrl-C and other signals end it cleanly from the first moment.

This module is outside the package, because importing any part of the package imports torch, which takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

INTERRUPTED = 128 + signal.SIGINT

# Other signals that request termination; SIGHUP arrives when a terminal is closed.
TERMINATING = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

# Seconds until a signal is sent again if Python dropped its exception.
AGAIN_SECONDS = 0.01


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `bayesnorm` and exit; the console script calls this.

    Args:
        arguments: The command-line arguments; None uses those of the process.
    """
    end_with("bayesnorm.cli.app", arguments)


def end_with(module: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the commands of a module and exit with their exit code.

    The exit code is 130 after Ctrl-C, 143 after SIGTERM and 129 after the terminal is closed. During imports there is
    nothing to clean up, and an import may swallow an exception, so signals end the process immediately. Afterwards they
    raise exceptions, so that partly written files are removed.

    Args:
        module: Name of a module with a function `run(arguments)` that returns the exit code. It is imported here, so
            that a missing extra gives a one-line message.
        arguments: The command-line arguments; None uses those of the process.
    """
    _heed(_end_at_once, _end_at_once)
    import importlib
    import io

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, for example by >&-; the next opened file would take its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # some consoles cannot print all characters of a table
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print("error: the command line needs typer and rich: pip install typer rich.", file=sys.stderr)
        sys.exit(1)
    application = importlib.import_module(module)
    if os.name == "posix":  # elsewhere only Ctrl-C arrives, and a process cannot send it to itself alone
        sys.unraisablehook = _send_again
    try:
        _heed(signal.default_int_handler, _terminate)
        code = application.run(arguments)
    except KeyboardInterrupt:  # before the application handles signals, or again while it exits
        _tell_interrupted()
        code = INTERRUPTED
    finally:
        _heed(signal.SIG_DFL, signal.SIG_DFL)  # otherwise the interpreter prints exceptions while it exits
    sys.exit(code)


def _heed(on_interrupt: Any, on_terminate: Any) -> None:
    """Set the signal handlers, except for signals that the parent process ignores, as `nohup` does."""
    for number, handler in ((signal.SIGINT, on_interrupt), *((number, on_terminate) for number in TERMINATING)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end_at_once(number: int, _: object) -> NoReturn:
    if number == signal.SIGINT:
        _tell_interrupted()
    os._exit(128 + number)


def _tell_interrupted() -> None:
    with contextlib.suppress(OSError):  # nobody may be reading it
        os.write(2, b"interrupted\n")


def _terminate(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _send_again(dropped: Any, tell: Callable[[Any], object] = sys.unraisablehook) -> None:
    """Send a signal again if its exception was raised where Python drops exceptions, such as in a destructor."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt | SystemExit):
        tell(dropped)
        return
    import threading

    number = signal.SIGINT if issubclass(dropped.exc_type, KeyboardInterrupt) else signal.SIGTERM
    threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()
