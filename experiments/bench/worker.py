"""Compute a unit; as a script, run a worker that reads units as JSON lines and answers with JSON lines.

The script imports only the standard library, so a worker starts immediately and loads only what its units need.
"""

from __future__ import annotations

import faulthandler
import functools
import importlib
import json
import os
import platform
import queue
import random
import signal
import sys
import threading
import time
import traceback
from typing import IO, Any

ERROR_CHARACTERS = 20_000
STOP = "stop"
LAST = "last"
"""In an answer: whether the worker ends after it."""


def answer(function: str, parameters: str, key: str, threads: int) -> dict[str, Any]:
    """Return the answer of a function for parameters, which are JSON.

    The global random generators of Python, and of NumPy and torch if the unit's module imports them, are seeded with
    the unit's key. A unit therefore gives the same result whatever ran before it.

    Returns:
        `result`, as JSON, or `error`, as text; `seconds` of the call, and `machine`.
    """
    process, status = os.getpid(), 0
    started = time.perf_counter()
    try:
        module, _, name = function.partition(":")
        called: Any = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)
        _seed(key)
        started = time.perf_counter()
        result = called(**json.loads(parameters))
        seconds = time.perf_counter() - started
        outcome = {"result": _as_json(function, result)}
    except (Exception, SystemExit) as error:
        seconds = time.perf_counter() - started
        outcome = {"error": traceback.format_exc()[-ERROR_CHARACTERS:]}
        status = 0 if isinstance(error, SystemExit) and not error.code else 1
    if os.getpid() != process:  # a child process that the unit forked must neither answer nor continue
        os._exit(status)
    return {**outcome, "seconds": seconds, "machine": describe_machine(threads)}


def describe_machine(threads: int) -> dict[str, Any]:
    """Return hardware and versions of a result, for packages that the unit has loaded."""
    torch, package = sys.modules.get("torch"), sys.modules.get("bayesnorm")
    return {
        "cpu": _cpu_name() if package else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        **({"torch": str(torch.__version__)} if torch else {}),
        **({"bayesnorm": package.__version__} if package and hasattr(package, "__version__") else {}),
    }


def _cpu_name() -> str:
    from bayesnorm.report import cpu_name  # not loaded for units that do not use the package

    return cpu_name()


def _as_json(function: str, result: Any) -> str:
    try:
        return json.dumps(result)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{function} returned a value that JSON cannot represent ({error}). Return plain numbers."
        ) from None


def _seed(key: str) -> None:
    number = int(key[:8], 16)
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(number)


def _accelerator_lost() -> bool:
    """Return whether CUDA is broken in this process: after some errors every later call fails too."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _private(number: int, mode: str, instead: int) -> IO[str]:
    """Return a private standard stream; units that read or print use another one."""
    stream = os.fdopen(os.dup(number), mode, buffering=1, encoding="ascii")
    os.dup2(instead, number)
    return stream


def _read(lines: IO[str], units: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    """Put incoming units into the queue, and None at the end; if the input breaks off, end the process."""
    for line in lines:
        if not line.endswith("\n"):  # the runner died while writing
            break
        message = json.loads(line)
        units.put(None if message == STOP else message)
        if message == STOP:
            return
    os._exit(1)  # the runner is gone, so nobody waits for the current unit


def main() -> None:
    """Answer until the runner says stop; exit immediately when standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner handles Ctrl-C
    faulthandler.enable()
    with open(os.devnull) as nothing:
        lines = _private(0, "r", nothing.fileno())
    answers = _private(1, "w", 2)
    settings = json.loads(lines.readline())
    sys.path[:] = settings["path"]
    units: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines, units), daemon=True).start()
    while (unit := units.get()) is not None:
        told = answer(**unit, threads=settings["threads"])
        lost = "error" in told and _accelerator_lost()
        answers.write(json.dumps({**told, LAST: lost}) + "\n")
        if lost:
            return


if __name__ == "__main__":
    main()
