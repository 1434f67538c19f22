"""Compute the units that a store is missing with this machine's cores."""

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
        """Compute the units that the store has no results of; report (units dealt with, all units)."""
        ...


def run_local(
    units: Iterable[Unit],
    store: Store,
    *,
    workers: int | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Tally:
    """Compute the units that the store has no results of, on this machine.

    Each result is in the store as soon as it is there, so that a run that was stopped or killed goes on where it was.
    A unit that raises, or whose process dies, is recorded as failed, and the others go on. The results are the same
    for any number of workers. Two runs of the same units at once do much of the work twice; more workers do not.

    Args:
        units: What to compute; repetitions count once.
        store: Where results are and go.
        workers: Processes at once; None for one per `threads` cores, 0 to compute in this process.
        threads: Number of threads of each process.
        progress: Called with (units dealt with, all units), first with those that were there.
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
    """Keep this process's thread count and global generators as they were."""
    threads, plain, legacy = torch.get_num_threads(), random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002
