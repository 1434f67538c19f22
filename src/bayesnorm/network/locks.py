"""Run forward passes one at a time in a process, and clean up passes of other threads in a forked child."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

# A forward pass stores its state in a private copy, and all threads share torch's generators.
_turn = threading.RLock()

# Functions that restore what the current forward pass has changed, the innermost last.
_under_way: list[list[Callable[[], object]]] = []

# The number of forward passes that were running in the parent process when this process was forked.
_lost = 0

# Seconds that a fork waits for another thread's forward pass; a forward may itself wait for the forking thread.
FORK_WAITS = 1.0


class _Fork(threading.local):
    """State of a fork in the thread that forks."""

    has_turn = False


_fork = _Fork()


@contextlib.contextmanager
def exclusive_pass() -> Iterator[list[Callable[[], object]]]:
    """Wait until other threads' forward passes have ended; give a list for cleanup functions.

    If another thread forks meanwhile, the child calls these functions to restore what the forward pass has changed.
    """
    with _turn:
        _under_way.append([])
        try:
            yield _under_way[-1]
        finally:
            _under_way.pop()


def fork_generation() -> int:
    """Return how many forward passes were interrupted by forks: an older private copy may be in the middle of one."""
    return _lost


def _before_fork() -> None:
    _fork.has_turn = False
    _fork.has_turn = _turn.acquire(timeout=FORK_WAITS)


def _after_fork_in_parent() -> None:
    if _fork.has_turn:
        _turn.release()


def _after_fork_in_child() -> None:
    global _turn, _lost
    if _fork.has_turn:
        _turn.release()
        return
    _turn = threading.RLock()
    _lost += 1
    while _under_way:
        for put_back in _under_way.pop():
            put_back()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
