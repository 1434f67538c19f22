"""The beginning of the command `bayesnorm`: Ctrl-C and other signals end it quietly, from its first moment on.

This stands beside the package, not in it: importing anything of the package imports torch, which takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

INTERRUPTED = 128 + signal.SIGINT

# What else asks a process to end; the second comes when a terminal is closed.
TERMINATING = [signal.Signals[name] for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

# Seconds after which a signal is sent again whose exception Python had to drop.
AGAIN_SECONDS = 0.01


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `bayesnorm` and end the process; the console script calls this.

    Args:
        arguments: What stands behind `bayesnorm`; None takes the process's own.
    """
    end_with("bayesnorm.cli.app", arguments)


def end_with(module: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the commands of a module and end the process with their exit code.

    Ctrl-C ends it with 130, SIGTERM with 143, and a closed terminal with 129. While modules are imported there is
    nothing to clean up, and an exception in the middle of an import may be swallowed there, so that the process ends at
    once. Later these signals are exceptions, so that whatever is half-written goes.

    Args:
        module: Name of a module with a function `run(arguments)` that returns the exit code. It is imported only
            here, so that an extra that is missing is told in one line.
        arguments: What stands behind the program's name; None takes the process's own.
    """
    _heed(_end_at_once, _end_at_once)
    import importlib
    import io

    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-, so that the next file would take its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # not all consoles know all letters that tables hold
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print("error: the command line needs typer and rich: pip install typer rich.", file=sys.stderr)
        sys.exit(1)
    application = importlib.import_module(module)
    if os.name == "posix":  # elsewhere nothing but Ctrl-C comes, and a process cannot send that to itself alone
        sys.unraisablehook = _send_again
    try:
        _heed(signal.default_int_handler, _terminate)
        code = application.run(arguments)
    except KeyboardInterrupt:  # before the application listened, or once more while it ended
        _tell_interrupted()
        code = INTERRUPTED
    finally:
        _heed(signal.SIG_DFL, signal.SIG_DFL)  # the interpreter would tell of exceptions while it ends
    sys.exit(code)


def _heed(on_interrupt: Any, on_terminate: Any) -> None:
    """Set what signals do, except those that whoever started the process wants ignored, as `nohup` does."""
    for number, handler in ((signal.SIGINT, on_interrupt), *((number, on_terminate) for number in TERMINATING)):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _end_at_once(number: int, _: object) -> NoReturn:
    if number == signal.SIGINT:
        _tell_interrupted()
    os._exit(128 + number)


def _tell_interrupted() -> None:
    with contextlib.suppress(OSError):  # nobody may read it any more
        os.write(2, b"interrupted\n")


def _terminate(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def _send_again(dropped: Any, tell: Callable[[Any], object] = sys.unraisablehook) -> None:
    """Send a signal again whose exception came where Python drops exceptions, such as in a destructor."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt | SystemExit):
        tell(dropped)
        return
    import threading

    number = signal.SIGINT if issubclass(dropped.exc_type, KeyboardInterrupt) else signal.SIGTERM
    threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), number)).start()
