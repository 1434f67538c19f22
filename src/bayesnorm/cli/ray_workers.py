"""Predict chunks of a table in the workers of a Ray cluster.

This process reads the chunks and writes their predictions in order. Ray starts a killed worker again, with the chunks
that it had not finished. Workers take one processor each, and this process takes none from Ray, so that it never waits
for a processor that its own workers hold.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from ..errors import BayesNormError, load_package
from .scoring import Scored, Scoring

# Seconds to wait for a first worker, for the others after it, for the answer of an address, and for one chunk.
FIRST_SECONDS, OTHERS_SECONDS, CONNECT_SECONDS, CHUNK_SECONDS = 90.0, 15.0, 10.0, 900.0

# How often a worker is started again.
RESTARTS = 10

# Chunks that each worker has at most, so that it need not wait for this process.
AHEAD = 2


class Worker:
    """An actor that predicts chunks.

    Args:
        scoring: How chunks are predicted.
    """

    def __init__(self, scoring: Scoring) -> None:
        torch.set_num_threads(1)
        self._scoring = scoring

    def process(self) -> int:
        """Return the number of the worker's process, as soon as it can predict."""
        return os.getpid()

    def score(self, part: Any) -> Scored | BayesNormError:
        """Return the predictions of a chunk, or the error that describes what is wrong with it."""
        try:
            return self._scoring.score(part)
        except BayesNormError as error:
            return error


@contextlib.contextmanager
def ray_workers(
    scoring: Scoring, address: str | None, workers: int | None
) -> Iterator[Callable[[Iterable[Any]], Iterator[Scored]]]:
    """Yield a function that predicts chunks with workers, and yields the predictions in the same order.

    Args:
        scoring: How chunks are predicted.
        address: The address of a running cluster, or "auto"; None for a temporary cluster on this machine.
        workers: Number of workers; None for the processors of this machine or of the cluster.
    """
    advice = "--runner ray needs Ray. Run: pip install ray"
    ray = load_package("ray", advice)
    load_package("ray.exceptions", advice)
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with _connected(ray, address, workers or processors):
        count = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        here = f"{Path(__file__).parents[2]}{os.pathsep}${{PYTHONPATH}}"
        actor = ray.remote(
            num_cpus=1,
            max_restarts=RESTARTS,
            max_task_retries=RESTARTS,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "PYTHONPATH": here}},
        )(Worker)
        shared = ray.put(scoring)
        actors = _started(ray, [actor.remote(shared) for _ in range(count)])

        def score(chunks: Iterable[Any]) -> Iterator[Scored]:
            pending = deque[Any]()
            for number, chunk in enumerate(chunks):
                pending.append(actors[number % len(actors)].score.remote(chunk))
                if len(pending) >= AHEAD * len(actors):
                    yield _fetched(ray, pending.popleft())
            while pending:
                yield _fetched(ray, pending.popleft())

        yield score


def _started(ray: Any, actors: list[Any]) -> list[Any]:
    """Return the workers that have started, and stop those for which no processor is free."""
    calls = {actor.process.remote(): actor for actor in actors}
    try:
        ready, _ = ray.wait([*calls], num_returns=1, timeout=FIRST_SECONDS)
        ready, late = ray.wait([*calls], num_returns=len(calls), timeout=OTHERS_SECONDS if ready else 0)
        for call in ready:
            ray.get(call)
    except ray.exceptions.RayError as error:
        raise BayesNormError(f"--runner ray: no worker could start ({' '.join(str(error).split())[:500]}).") from error
    if not ready:
        total, free = (int(values.get("CPU", 0)) for values in (ray.cluster_resources(), ray.available_resources()))
        raise BayesNormError(
            f"--runner ray: no worker started within {FIRST_SECONDS:g} seconds. A worker needs 1 processor, and {free} "
            f"of the {total} processors of the cluster are free. Wait until other work ends, or use --runner local."
        )
    for call in late:
        ray.kill(calls[call])
    return [calls[call] for call in ready]


def _fetched(ray: Any, call: Any) -> Scored:
    """Return the predictions of a chunk, or raise the error of its worker."""
    try:
        scored: Scored | BayesNormError = ray.get(call, timeout=CHUNK_SECONDS)
    except ray.exceptions.GetTimeoutError:
        raise BayesNormError(
            f"--runner ray: a chunk was not predicted within {CHUNK_SECONDS:g} seconds, perhaps because the cluster "
            "lost machines. Run the command again: it continues after the rows that are complete."
        ) from None
    except ray.exceptions.RayError as error:
        raise BayesNormError(
            f"--runner ray: a worker was lost more than {RESTARTS} times, often because of too little memory "
            f"({' '.join(str(error).split())[:500]}). Run the command again with fewer --workers: it continues after "
            "the rows that are complete."
        ) from error
    if isinstance(scored, BayesNormError):
        raise scored
    return scored


@contextlib.contextmanager
def _connected(ray: Any, address: str | None, processors: int) -> Iterator[None]:
    """Connect to a cluster; an existing connection stays, a new one is closed afterwards."""
    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"address": address}
    if address is None:
        options = {"address": "local", "num_cpus": processors, "include_dashboard": False}
    elif address != "auto":
        _require_reachable(address)
    main, handler = threading.current_thread() is threading.main_thread(), signal.getsignal(signal.SIGTERM)
    try:
        with _quiet_settings(temporary=address is None):
            try:
                ray.init(**options, log_to_driver=False, logging_level="error")
            except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                why = " ".join(str(error).split())
                raise BayesNormError(f"--runner ray: Ray could not start with --address {address} ({why}).") from error
        yield
    finally:
        ray.shutdown()
        if main and handler is not None:
            signal.signal(signal.SIGTERM, handler)  # Ray replaces it


def _require_reachable(address: str) -> None:
    """Raise an error for an address where nothing answers; Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError, ValueError) as error:
        raise BayesNormError(
            f'--address: no cluster answers at {address} ({error}). Pass "host:port" of a running cluster, or auto.'
        ) from None


@contextlib.contextmanager
def _quiet_settings(temporary: bool) -> Iterator[None]:
    """Turn off Ray's usage statistics, and leave no secret of a temporary cluster in the user's home folder."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0"}
    has_secret = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    if temporary and not has_secret and not (Path.home() / ".ray" / "auth_token").exists():
        settings["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    before = {name: os.environ.get(name) for name in (*settings, "RAY_AUTH_MODE")}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
