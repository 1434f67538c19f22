"""Compute the missing units of a store with this machine's cores."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import torch

from bayesnorm.network import Progress

from .ledger import Ledger, Tally, require_count
from .pool import Answer, work
from .store import Store
from .unit import Unit
from .worker import answer


class Runner(Protocol):
    """A function that computes units; results are in the store when it returns."""

    def __call__(self, units: Iterable[Unit], store: Store, *, progress: Progress | None = None) -> Tally:
        """Compute the units without results in the store; report (units done, all units)."""
        ...


def run_local(
    units: Iterable[Unit],
    store: Store,
    *,
    workers: int | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Tally:
    """Compute the units without results in the store, on this machine.

    Each result is stored as soon as it is computed, so an interrupted run continues. A unit that raises an error, or
    whose process dies, is recorded as failed, and the others continue. The results are the same for any number of
    workers. Two simultaneous runs of the same units do much of the work twice; use more workers instead.

    Args:
        units: The units to compute; repetitions count once.
        store: The store for results.
        workers: Number of processes; None for one per `threads` cores, 0 to compute in this process.
        threads: Number of threads of each process.
        progress: Called with (units done, all units), first with those that existed.
    """
    workers = None if workers is None else require_count("workers", workers, 0)
    threads = require_count("threads", threads, 1)
    ledger = Ledger(units, store, progress)

    def record(unit: Unit, told: Answer) -> None:
        ledger.record(unit, told)
        ledger.tell()

    ledger.tell()
    if workers == 0:
        with _unchanged_globals():
            while (unit := ledger.take()) is not None:
                record(unit, answer(unit.function, unit.text, unit.key, threads))
    elif ledger.missing:
        count = max(1, available_cores() // threads) if workers is None else workers
        work(ledger.take, record, workers=min(count, len(ledger.missing)), threads=threads)
    return ledger.tally


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _unchanged_globals() -> Iterator[None]:
    """Restore this process's thread count and global generators afterwards."""
    threads, plain, legacy = torch.get_num_threads(), random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002
