"""Compute the missing units of a store with the machines of a Ray cluster."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bayesnorm.errors import BayesNormError, MissingExtraError
from bayesnorm.network import Progress

from .ledger import Ledger, Tally, require_count
from .pool import THREADS, Answer
from .runner import available_cores
from .store import Store
from .unit import Unit
from .worker import answer

AHEAD = 2
"""Units sent to the cluster per unit that it can compute at once, so that no machine waits and a cluster may grow."""
CONNECT_SECONDS = 10.0
CHECKOUT = Path(__file__).parents[2]


def run_ray(
    units: Iterable[Unit],
    store: Store,
    *,
    address: str | None = None,
    workers: int | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Tally:
    """Compute the units without results in the store, with Ray.

    Results, keys and failures are those of `run_local`: each result is stored as soon as it is computed. A unit that
    raises an error, or whose process or machine dies, is recorded as failed, and the others continue. Only this process
    writes to the store. The cluster's machines need this package, the modules of the units, and their data. What units
    print goes to Ray's logs. A unit with a parameter `device` that begins with "cuda" gets its own GPU.

    Args:
        units: The units to compute; repetitions count once.
        store: The store for results.
        address: Address of a running cluster, "auto" for one that `ray start` started on this machine. None uses the
            existing connection of this process, or else a temporary cluster on this machine.
        workers: Number of units at once; None for one per `threads` cores of the cluster.
        threads: Number of threads of each unit.
        progress: Called with (units done, all units), first with those that existed.
    """
    workers = None if workers is None else require_count("workers", workers, 1)
    threads = require_count("threads", threads, 1)
    ray = _import_ray()
    ledger = Ledger(units, store, progress)
    ledger.tell()
    if ledger.missing:
        cores = available_cores() if workers is None else workers * threads
        with _connected(ray, address, cores):
            _work(ray, ledger, workers=workers, threads=threads)
    return ledger.tally


def _work(ray: Any, ledger: Ledger, *, workers: int | None, threads: int) -> None:
    """Keep the cluster busy until nothing is left; on an interruption, keep finished results and stop the rest."""
    # A process of the cluster imports this module, to find `_compute`, before it gets the driver's import path.
    path_there = f"{CHECKOUT}{os.pathsep}${{PYTHONPATH}}"
    variables = {**dict.fromkeys(THREADS, str(threads)), "PYTHONPATH": path_there}
    # A unit is tried once per run, as in `run_local`.
    options = {"max_retries": 0, "retry_exceptions": False, "runtime_env": {"env_vars": variables}}
    remote = ray.remote(**options)(_compute)
    # After some errors CUDA fails permanently in a process, so no other unit may run in it.
    remote_on_gpu = ray.remote(**options, max_calls=1)(_compute)
    path = [str(place) for place in sys.path]
    running: dict[Any, Unit] = {}
    more = True
    try:
        while more or running:
            machines = _machines(ray)
            room = workers or AHEAD * _capacity(machines, threads)
            while more and len(running) < room:
                unit = ledger.take()
                more = unit is not None
                if unit is not None:
                    called = remote_on_gpu if _wants_gpu(unit) else remote
                    call = called.options(**_needs(machines, unit, threads))
                    running[call.remote(path, unit.function, unit.text, unit.key, threads)] = unit
            if running:
                (done,), _ = ray.wait([*running], num_returns=1)
                ledger.record(running.pop(done), _fetch(ray, done))
                ledger.tell()
    except BaseException:
        with contextlib.suppress(ray.exceptions.RayError):  # a lost cluster has nothing to keep
            done, _ = ray.wait([*running], num_returns=len(running), timeout=0) if running else ([], [])
            for reference in done:
                told = _fetch(ray, reference)
                if told["machine"] is not None:  # the unit's own answer
                    ledger.record(running.pop(reference), told)
            for reference in running:
                ray.cancel(reference, force=True)
        raise


def _compute(path: list[str], function: str, parameters: str, key: str, threads: int) -> Answer:
    """Run the unit on the cluster, with the driver's import path."""
    sys.path.extend(place for place in path if place not in sys.path)
    return answer(function, parameters, key, threads)


def _fetch(ray: Any, reference: Any) -> Answer:
    """Return a unit's answer, or why it has none."""
    try:
        told: Answer = ray.get(reference)
    except ray.exceptions.WorkerCrashedError:
        error = "The worker process died before the unit was finished, often because of too little memory."
    except ray.exceptions.RayError as problem:
        error = f"Ray lost the unit before it was finished: {problem}"
    else:
        return told
    return {"error": error, "seconds": None, "machine": None}


def _machines(ray: Any) -> list[dict[str, float]]:
    """Return the resources of each machine of the cluster."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _capacity(machines: list[dict[str, float]], threads: int) -> int:
    """Return how many units the cluster can compute at once."""
    return max(1, sum(int(machine.get("CPU", 0)) // threads for machine in machines))


def _needs(machines: list[dict[str, float]], unit: Unit, threads: int) -> dict[str, float]:
    """Return what the unit reserves; never more than some machine has, because Ray would wait forever."""
    largest = max((machine.get("CPU", 0) for machine in machines), default=0)
    gpus = any(machine.get("GPU", 0) >= 1 for machine in machines)
    return {"num_cpus": min(threads, largest) or threads, "num_gpus": int(_wants_gpu(unit) and gpus)}


def _wants_gpu(unit: Unit) -> bool:
    return str(unit.parameters.get("device", "")).startswith("cuda")


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, cores: int) -> Iterator[None]:
    """Connect to a cluster; an existing connection stays, a new one is closed afterwards."""
    if ray.is_initialized():
        if address is not None:
            raise BayesNormError(
                f"address={address!r}, but this process is already connected to a cluster. Use address=None for that "
                "cluster, or call ray.shutdown() first."
            )
        yield
        return
    if address is None:
        asked: dict[str, Any] = {"address": "local", "num_cpus": cores, "include_dashboard": False}
    else:
        _require_reachable(address)
        asked = {"address": address}
    with _own_signal_handlers():
        try:
            with _quiet_settings(temporary=address is None):
                ray.init(**asked, log_to_driver=False, logging_level="error")
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            ray.shutdown()
            raise BayesNormError(
                f"address={address!r}, but Ray could not start ({' '.join(str(error).split())}). Use {_ADDRESSES}."
            ) from error
        try:
            yield
        finally:
            ray.shutdown()


_ADDRESSES = 'the address of a running cluster, "host:port", or None for a cluster on this machine'


def _require_reachable(address: str) -> None:
    """Refuse an address where nothing answers; Ray itself would try for many minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise BayesNormError(f"address must be {_ADDRESSES}, got {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise BayesNormError(f"address: nothing answers at {address!r} ({error}). Use {_ADDRESSES}.") from error


@contextlib.contextmanager
def _quiet_settings(temporary: bool) -> Iterator[None]:
    """Turn off Ray's usage statistics, and leave no secret of a temporary cluster in the user's home folder."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0"}
    told = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if temporary and not told and not (Path.home() / ".ray" / "auth_token").exists():
        settings["RAY_AUTH_TOKEN"] = _secret()
    names = [*settings, "RAY_AUTH_MODE"]  # Ray sets it otherwise
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@functools.cache
def _secret() -> str:
    """Return the secret of this process's temporary clusters; one for all, because Ray remembers the first."""
    return secrets.token_hex(32)


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces while it is connected."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if main and before is not None:
            signal.signal(signal.SIGTERM, before)


def _import_ray() -> Any:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise MissingExtraError("run_ray needs Ray: pip install ray.") from error
    return ray
