"""Let passes take turns: one at a time in a process, and none of another thread's left under way in a forked child."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator

# A pass notes in a private copy what it is about, and torch's generators are everyone's.
_turn = threading.RLock()

# What puts back what the pass under way has changed, the innermost last.
_under_way: list[list[Callable[[], object]]] = []

# How many passes ended with the process that they were under way in, of which this one is a fork.
_lost = 0

# Seconds that a fork waits for the pass of another thread to end; a forward may itself wait for the thread that forks.
FORK_WAITS = 1.0


class _Fork(threading.local):
    """What a thread that forks knows of it."""

    has_turn = False


_fork = _Fork()


@contextlib.contextmanager
def turn() -> Iterator[list[Callable[[], object]]]:
    """Wait until other threads' passes have ended; give a list for functions that a lost pass needs.

    A child that another thread forks meanwhile calls them to put back what the pass has changed, however far it was.
    """
    with _turn:
        _under_way.append([])
        try:
            yield _under_way[-1]
        finally:
            _under_way.pop()


def lost_passes() -> int:
    """Return how many passes a fork has lost: a private copy that is older may be in the midst of one."""
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
