"""Computes the units that a store is missing, with this machine's cores."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from ..errors import BayesNormError
from ..network import Progress
from .pool import Answer, work
from .store import Store
from .unit import Unit, distinct
from .worker import answer


@dataclass(frozen=True)
class Tally:
    """What a run did.

    Args:
        kept: Units whose results were in the store already.
        finished: Units that gave a result.
        failed: Units that did not; `store.failures` says why, and the next run tries them again.
    """

    kept: int
    finished: int
    failed: int


class Runner(Protocol):
    """Whatever computes units; results are in the store when it returns."""

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
    for any number of workers.

    Args:
        units: What to compute; repetitions count once.
        store: Where results are and go.
        workers: Processes at once; None for one per `threads` cores, 0 to compute in this process.
        threads: Threads of each.
        progress: Called with (units dealt with, all units), first with those that were there.
    """
    _require_count("workers", workers, 0)
    _require_count("threads", threads, 1)
    everything = distinct(units)
    missing = store.missing(everything)
    _require_modules(missing)
    kept, finished, failed = len(everything) - len(missing), 0, 0
    waiting = iter(missing)

    def tell() -> None:
        if progress is not None:
            progress(kept + finished + failed, len(everything))

    def take() -> Unit | None:
        nonlocal kept
        for unit in waiting:
            if store.missing([unit]):
                return unit
            kept += 1  # another run of the same units was faster
            tell()
        return None

    def record(unit: Unit, told: Answer) -> None:
        nonlocal finished, failed
        if "error" in told:
            store.add_failure(unit, told["error"], told["seconds"], told["machine"])
            failed += 1
        else:
            store.add_result_text(unit, told["result"], told["seconds"], told["machine"])
            finished += 1
        tell()

    tell()
    if workers == 0:
        with _as_before():
            while (unit := take()) is not None:
                record(unit, answer(unit.function, unit.text, unit.key, threads))
    elif missing:
        count = max(1, _cores() // threads) if workers is None else workers
        work(take, record, workers=min(count, len(missing)), threads=threads)
    return Tally(kept, finished, failed)


def _require_count(name: str, value: int | None, least: int) -> None:
    if value is None and name == "workers":
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise BayesNormError(f"{name}: {value!r} was given; a whole number, at least {least}, would work.")


def _require_modules(units: list[Unit]) -> None:
    for module in sorted({unit.function.partition(":")[0] for unit in units}):
        try:
            found = importlib.util.find_spec(module) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            raise BayesNormError(f"units: there is no module {module}; one that can be imported from here would work.")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _as_before() -> Iterator[None]:
    """Keeps this process's thread count and global generators as they were."""
    threads, plain, legacy = torch.get_num_threads(), random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        torch.set_num_threads(threads)
        random.setstate(plain)
        np.random.set_state(legacy)  # noqa: NPY002
