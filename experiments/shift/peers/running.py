"""Run units in several processes, each result appended to a file as soon as it is there."""

from __future__ import annotations

import contextlib
import fcntl
import json
import multiprocessing
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ...machine import machine
from .measuring import Place, Row, measure_unit
from .plan import TIMES, Unit
from .sources import load_source
from .streaming import conditions, make_images


def run_units(units: list[Unit], place: Place, workers: int, path: Path, deadline: float) -> None:
    """Run units until all are done or the time is over; finished ones in the file are not run again.

    Args:
        units: The units, the most important ones first.
        place: Where everything is.
        workers: Number of processes; with one, units run in this process.
        path: The file, one line of JSON for each unit.
        deadline: No unit starts after this time of `time.time`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _append(path, {"machine": machine(place.device)})
    done = {_key(unit) for unit in finished(path)}
    left = [unit for unit in units if _key(asdict(unit)) not in done]
    # Times are measured while nothing else runs.
    for unit in left if workers == 1 else [unit for unit in left if unit.stage == TIMES]:
        _run(unit, place, path, deadline)
    if workers == 1:
        return
    left = [unit for unit in left if unit.stage != TIMES]
    context = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
    with ProcessPoolExecutor(workers, context, _one_thread) as pool:
        for result in as_completed([pool.submit(_run, unit, place, path, deadline) for unit in left]):
            result.result()


def prepare(units: list[Unit], place: Place, workers: int) -> None:
    """Make the corrupted images of all units, and fit the posteriors of all networks."""
    place.images.mkdir(parents=True, exist_ok=True)
    severities = sorted({unit.severity for unit in units}, reverse=True)
    where = list(dict.fromkeys(part for severity in severities for part in conditions(severity, place.corruptions)))
    context = multiprocessing.get_context("spawn")
    if workers == 1:
        for part in where:
            make_images(place.images, part, place.test_images.stop)
    else:
        with ProcessPoolExecutor(workers, context, _one_thread) as pool:
            for result in [pool.submit(make_images, place.images, part, place.test_images.stop) for part in where]:
                result.result()
    for name in dict.fromkeys(unit.network for unit in units):
        load_source(name, place.networks, place.device)


def finished(path: Path) -> list[Row]:
    """Return the finished units in a file, each with its `rows`."""
    return [line for line in lines(path) if "rows" in line]


def lines(path: Path) -> list[dict[str, Any]]:
    """Return everything in a file of units; half a line at its end is ignored."""
    results = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            results.append(json.loads(line))
    return results


def _run(unit: Unit, place: Place, path: Path, deadline: float) -> None:
    if time.time() > deadline:
        return
    started, result = time.perf_counter(), asdict(unit)
    try:
        result["rows"] = measure_unit(unit, place)
    except Exception as error:  # the other units go on
        result["error"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    if place.device == "cuda":
        torch.cuda.empty_cache()  # the other processes need the memory
    result["seconds"] = round(time.perf_counter() - started, 2)
    _append(path, result)
    print(f"{unit.name}: {result['seconds']} s", flush=True)


def _append(path: Path, line: dict[str, Any]) -> None:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(line) + "\n")


def _key(unit: dict[str, Any]) -> str:
    names = ("stage", "network", "method", "severity", "orders", "size", "length", "every")
    return json.dumps([unit[name] for name in names])


def _one_thread() -> None:
    torch.set_num_threads(1)
