"""Run a function in a process of its own, with limits, and tell how it ended."""

from __future__ import annotations

import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable

# Seconds after which a child is ended.
LONGEST = 300


def in_a_child(function: Callable[[], object], more_memory: int | None = None, longest: int = LONGEST) -> None:
    """Call a function in a copy of this process, and raise an error unless it ends well.

    Args:
        function: What to call; it may end its process by a signal.
        more_memory: Bytes of memory that it may take beyond what this process has; None for no limit.
        longest: Seconds after which it is ended.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(longest)
            if more_memory is not None:
                with open("/proc/self/statm") as file:
                    now = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
                resource.setrlimit(resource.RLIMIT_AS, (now + more_memory, now + more_memory))
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if ended:
        how = signal.Signals(-ended).name if ended < 0 else f"status {ended}"
        raise AssertionError(f"the process ended by {how}")
