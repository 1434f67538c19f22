"""Runs of `tabular` and `tabular_classes`, which can be stopped and continued."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

from bayesnorm.writing import write_bytes
from experiments.machine import machine

Row = dict[str, Any]
Model = TypeVar("Model")

PACKAGES = ("scikit-learn", "pandas", "ngboost", "catboost", "quantile-forest", "mapie", "pytabkit")
"""Packages whose versions are recorded."""


class LeftOut(Exception):
    """The reason why a model is not fitted to a set."""


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `LeftOut` if the block takes more CPU time than this.

    The time of other programs does not count, so they do not change what is left out.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise LeftOut(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, 5)  # repeatedly, in case a library catches the first one
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def timed(fit: Callable[[], Model], predict: Callable[[Model], Any], limit: float) -> tuple[Row, Any]:
    """Return the wall-clock and CPU times of fitting and predicting, and the prediction."""
    clocks = lambda: (time.perf_counter(), time.process_time())  # noqa: E731
    load, start = os.getloadavg()[0], clocks()
    with at_most(limit):
        model = fit()
    fitted = clocks()
    predictive = predict(model)
    predicted = clocks()
    times = {"load": load}
    for name, begin, end in (("fit", start, fitted), ("predict", fitted, predicted)):
        times |= {f"{name}_s": end[0] - begin[0], f"{name}_cpu_s": end[1] - begin[1]}
    return {key: round(value, 3) for key, value in times.items()}, predictive


def parser(description: str | None, sets: Sequence[str], models: Iterable[str], out: str) -> ArgumentParser:
    """Return a parser with the options of both comparisons."""
    result = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    result.add_argument("--sets", nargs="+", choices=sets, default=list(sets), metavar="SET")
    result.add_argument("--models", nargs="+", choices=list(models), default=list(models), metavar="MODEL")
    result.add_argument("--splits", type=int, default=5)
    result.add_argument("--threads", type=int, default=1)
    result.add_argument(
        "--limit", type=float, default=360, help="Largest CPU time of a fit, in seconds. [default: 360]"
    )
    result.add_argument("--again", action="store_true", help="Measure again what the file already contains.")
    result.add_argument("--out", type=Path, default=Path(out))
    return result


def go_on(options: Namespace, measured: Callable[[str, str, int], Row], needed: Mapping[str, str]) -> list[Row]:
    """Measure what is missing in the results file, write the file after every unit, and return all rows.

    Args:
        options: The options of `parser`.
        measured: Returns the scores of a set, a model and a split; raises `LeftOut` if there are none.
        needed: Packages that models need; models of packages that are not installed are not run.
    """
    torch.set_num_threads(options.threads)
    missing = [name for name in options.models if name in needed and not importlib.util.find_spec(needed[name])]
    if missing:
        print(f"Not installed, so not run: {', '.join(missing)} (see benchmarks/tabular_requirements.txt)")
    wanted = [
        (name, model, split)
        for split in range(1, options.splits + 1)
        for name in options.sets
        for model in options.models
        if model not in missing
    ]
    report: Row = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    if options.again:
        report["rows"] = [row for row in report["rows"] if _unit(row) not in wanted]
    rows: list[Row] = report["rows"]
    report["machine"] = report.get("machine", {}) | machine() | _versions() | {"threads": options.threads}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    have = {_unit(row) for row in rows}
    with threadpool_limits(options.threads):
        for name, model, split in (unit for unit in wanted if unit not in have):
            row: Row = {"set": name, "model": model, "split": split}
            reasons = [other["left out"] for other in rows if _unit(other)[:2] == (name, model) and "left out" in other]
            try:
                # A model that took too long on one split is not tried on the others.
                row |= {"left out": reasons[0]} if reasons else measured(name, model, split)
            except LeftOut as reason:
                row |= {"left out": str(reason)}
            rows.append(row)
            write_bytes(options.out, (json.dumps(report, indent=1) + "\n").encode())
            print(row, flush=True)
    return rows


def _unit(row: Row) -> tuple[str, str, int]:
    return row["set"], row["model"], row["split"]


def _versions() -> dict[str, str]:
    """Return the versions of the installed packages."""
    results = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            results[name] = version(name)
    return results
