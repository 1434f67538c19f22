"""Worker processes with one unit at a time; a worker that dies, or loses its GPU, is replaced and its unit fails."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .unit import Unit
from .worker import LAST, STOP

Answer = dict[str, Any]
Events = queue.SimpleQueue[tuple["_Worker", str]]

SCRIPT = Path(__file__).with_name("worker.py")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
LOOK_SECONDS, STOP_SECONDS = 0.5, 5.0


def work(
    take: Callable[[], Unit | None], finished: Callable[[Unit, Answer], None], *, workers: int, threads: int
) -> None:
    """Compute units with worker processes.

    Args:
        take: Returns the next unit; None if there is none left.
        finished: Called in this thread with each unit and its worker's answer.
        workers: Number of processes.
        threads: Number of threads of each process.
    """
    events: Events = queue.SimpleQueue()
    pool: set[_Worker] = set()
    leaving: set[_Worker] = set()

    def hire() -> None:
        """Start a process for the next unit, if there is one."""
        if (unit := take()) is not None:
            worker = _Worker(threads, events)
            pool.add(worker)
            worker.give(unit)

    def handle(worker: _Worker, line: str) -> None:
        """Report a worker's answer, or its death if the line is incomplete."""
        unit, worker.unit = worker.unit, None
        if unit is None:
            return
        if line.endswith("\n"):
            told = json.loads(line)
            if told.pop(LAST):
                pool.discard(worker)
                leaving.add(worker)
            finished(unit, told)
        else:
            pool.discard(worker)
            finished(unit, {"error": worker.obituary(), "seconds": None, "machine": None})

    try:
        for _ in range(workers):
            hire()
        while pool:
            try:
                worker, line = events.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                # A dead worker's pipe may stay open in processes that it started.
                dead = [worker for worker in pool if worker.process.poll() is not None]
                if not dead:
                    continue
                worker, line = dead[0], ""
            if worker not in pool:  # a late answer of a worker that has ended
                continue
            handle(worker, line)
            if worker not in pool:
                hire()
            elif (unit := take()) is not None:
                worker.give(unit)
            else:
                pool.discard(worker)
                leaving.add(worker)
                worker.stop()
    except BaseException:
        for worker in pool | leaving:
            worker.process.kill()
        with contextlib.suppress(queue.Empty):
            while True:  # keep what was finished before the interruption
                worker, line = events.get_nowait()
                if line.endswith("\n"):
                    handle(worker, line)
        raise
    finally:
        for worker in pool | leaving:
            worker.close()


class _Worker:
    """A process, its current unit, and a thread that reads its answers."""

    def __init__(self, threads: int, events: Events) -> None:
        self.unit: Unit | None = None
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
            bufsize=1,
            env={**os.environ, **dict.fromkeys(THREADS, str(threads))},
        )
        self._send({"path": [str(place) for place in sys.path], "threads": threads})
        self._listener = threading.Thread(target=self._listen, args=(events,), daemon=True)
        self._listener.start()

    def give(self, unit: Unit) -> None:
        """Send a unit to the process."""
        self.unit = unit
        self._send({"function": unit.function, "parameters": unit.text, "key": unit.key})

    def stop(self) -> None:
        """Let the process end by itself."""
        self._send(STOP)

    def close(self) -> None:
        """Make sure that the process has ended, by force if necessary."""
        assert self.process.stdin is not None
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self._listener.join(LOOK_SECONDS)

    def obituary(self) -> str:
        """Return a text about how the process died; wait if it is still ending."""
        self.close()
        code = self.process.returncode
        if code >= 0:
            return f"The worker process ended with exit code {code} before the unit was finished."
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
        hint = ", often because of too little memory" if name == "SIGKILL" else ""
        return f"The worker process was killed by {name} before the unit was finished{hint}."

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # if it is dead, its reader reports that
            self.process.stdin.write(json.dumps(message) + "\n")

    def _listen(self, events: Events) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                events.put((self, line))
        events.put((self, ""))
