"""Delay the signals that end the process while it must not stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

from bayesnorm_command import TERMINATING


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, SIGTERM and SIGHUP until the block has ended; only the main thread receives them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[signal.Signals] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERMINATING)}
    heeded = [number for number, handler in before.items() if callable(handler)]
    try:
        for number in heeded:
            signal.signal(number, lambda number, _: came.append(signal.Signals(number)))
        yield
    finally:
        for number in heeded:
            signal.signal(number, before[number])
        for number in came[:1]:
            signal.raise_signal(number)
