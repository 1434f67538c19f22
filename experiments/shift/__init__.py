"""Measure drift detection and adaptation on new data.

- images: CIFAR-10-C (`corruptions.py`) with the published ResNets: error, NLL and calibration of the unchanged network,
  of known methods for new statistics (`blending.py`), and of `adapt`, by number of images n and by severity.
- streams: `adapt` and the estimated errors on batches with all classes, with some and with one (`streams.py`).
- alarms: `drift` and `DriftMonitor` on the same images, clean and corrupted.
- clean: false alarms of `drift` on all clean test images of the data folder, not only the first 2,000.
- simulated: their false alarms on simulated rows, without any data.
- peers: `adapt` and the estimated errors beside methods from papers, on streams of all kinds (`peers/`).
- table: UCI sets, with training on one part and predictions for another.

The first 1,000 test images, without labels, are the target images; the others are scored. The temperature of all
methods is fitted on the clean first 1,000.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from ..bench import write_csv
from ..evidence import write_numbers, write_picture
from ..options import OUT, FastestDevice, NetworksFolder, OutFolder, Size, fastest
from . import showing
from .alarms import false_alarms_text, measure_alarms, measure_false_alarms, watch_images
from .images import COLUMNS as COLUMNS_OF_IMAGES, measure_images
from .networks import CLEAN, fitted
from .peers import compare_peers
from .presets import PRESETS, Preset
from .simulated import NETWORKS, measure_simulated, watch_simulated
from .streams import measure_streams, stream_means, streams_text
from .uci_parts import COLUMNS, STEPS, measure_table, table_text

Rows = list[dict[str, Any]]
Task = tuple[Callable[..., Rows], tuple[Any, ...]]
"""A measuring function and its arguments."""


class Part(StrEnum):
    """The parts of the experiment."""

    images = "images"
    alarms = "alarms"
    clean = "clean"
    streams = "streams"
    simulated = "simulated"
    table = "table"
    peers = "peers"


def main(
    part: Annotated[Part, typer.Argument(help="What to measure; all but simulated need the data folder.")],
    preset: Annotated[
        Size, typer.Option(help="How much to measure: everything in the documentation, or a short test.")
    ] = Size.quick,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    device: FastestDevice = None,
    networks: NetworksFolder = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="For peers: no measurement starts later; run again to continue.")
    ] = 36_000,
    short: Annotated[
        bool, typer.Option("--short", help="For peers: fewer and shorter streams, for an hour of one CPU core.")
    ] = False,
    only: Annotated[
        str, typer.Option(help="For peers: a regular expression for what to measure, such as 'ResNet-20, TENT'.")
    ] = "",
    out: OutFolder = OUT,
) -> None:
    """Measure drift and adaptation on corrupted images, simulated rows and tables.

    \b
    python -m experiments shift images --preset paper --workers 4 --out out
    """
    where = fastest(device)
    if part is Part.peers:
        folder = networks or out / "networks"
        compare_peers(str(preset), where, workers, folder, out, seconds=seconds, short=short, only=only)
        return
    results = measure(part, preset, where, workers)
    out.mkdir(parents=True, exist_ok=True)
    show(part, results, out)
    if part is Part.images:
        rows = results.pop("rows")
        write_csv(
            out / "shift_images.csv", COLUMNS_OF_IMAGES, [[row.get(c) for c in COLUMNS_OF_IMAGES] for row in rows]
        )
        results["means"] = showing.image_means(rows)
    write_numbers(
        out / f"shift_{part}.json",
        results,
        "cpu" if part in (Part.simulated, Part.table) else where,
    )


def measure(part: Part, preset: Size, device: str, workers: int) -> dict[str, Any]:
    """Return the results of one part as plain values: rows, and streams if there are any."""
    chosen, started = PRESETS[preset], time.perf_counter()
    results: dict[str, Any] = {"preset": asdict(chosen)}
    if part is Part.images:
        (results["rows"],) = _images((measure_images,), chosen, device, workers)
    elif part is Part.alarms:
        results["rows"], results["streams"] = _images((measure_alarms, watch_images), chosen, device, workers)
    elif part is Part.clean:
        (results["rows"],) = _images((measure_false_alarms,), replace(chosen, corruptions=()), device, workers)
    elif part is Part.streams:
        (results["rows"],) = _images((measure_streams,), chosen, device, workers)
        results["means"] = stream_means(results["rows"])
    elif part is Part.simulated:
        networks = [(kind, seed) for kind in NETWORKS for seed in range(chosen.simulated_networks)]
        # The slowest tasks are last in the list and start first.
        tasks: list[Task] = [(measure_simulated, (chosen, *network)) for network in reversed(networks)]
        results["rows"] = _together(tasks, workers)[::-1]
        streams: list[Task] = [(watch_simulated, (chosen, seed)) for seed in range(chosen.simulated_streams)]
        results["streams"] = _together(streams, workers)
    else:
        steps = STEPS if preset is Size.paper else 50
        asked = [(name, seed, steps) for name in COLUMNS for seed in range(chosen.splits)]
        results["rows"] = _together([(measure_table, arguments) for arguments in asked], workers)
    return results | {"seconds": round(time.perf_counter() - started)}


def show(part: Part, results: dict[str, Any], out: Path) -> None:
    """Print the table of a part, and write its plots."""
    rows = results["rows"]
    if part is Part.images:
        print(showing.images_text(rows))
        write_picture(out / "shift.png", showing.draw_over_rows(rows))
        write_picture(out / "shift_severity.png", showing.draw_over_severity(rows))
    elif part is Part.alarms:
        print(showing.alarms_text(rows, results["streams"]))
        write_picture(out / "shift_alarms.png", showing.draw_alarms(rows))
    elif part is Part.clean:
        print(false_alarms_text(rows))
    elif part is Part.streams:
        print(streams_text(results["means"]))
    elif part is Part.simulated:
        print(showing.simulated_text(rows, results["streams"]))
    else:
        print(table_text(rows))


def _images(measures: tuple[Callable[..., Rows], ...], preset: Preset, device: str, workers: int) -> list[Rows]:
    """Measure all networks on clean images and on every corruption; return rows for every measure."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for depth in preset.depths:
            fitted(depth, device, folder)  # otherwise several processes would do it
        cases = [(depth, kind) for depth in preset.depths for kind in (CLEAN, *preset.corruptions)]
        return [
            _together([(measure, (preset, *case, device, folder)) for case in cases], workers) for measure in measures
        ]


def _together(tasks: list[Task], workers: int) -> Rows:
    """Return the rows of all tasks, in their order, computed by several processes."""
    if workers == 1:
        _one_thread()
        return [row for task in tasks for row in _run(task)]
    context = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
    with ProcessPoolExecutor(workers, context, _one_thread) as pool:
        return [row for rows in pool.map(_run, tasks) for row in rows]


def _run(task: Task) -> Rows:
    measure, arguments = task
    return measure(*arguments)


def _one_thread() -> None:
    torch.set_num_threads(1)
