"""`python -m experiments uci`: run the regression benchmark of the MCBN paper, and more methods."""

from __future__ import annotations

import shlex
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bayesnorm.cli.ending import UsageError
from bayesnorm.cli.printing import note
from bayesnorm.errors import BayesNormError

from .. import uci
from ..bench import DEFAULT_STORE, Store, Tally, Unit, run_local, run_ray, unit_bar
from ..data import UCI_SETS
from ..known_names import require_known
from ..options import Device


class RunnerName(StrEnum):
    """What computes the units."""

    local = "local"
    ray = "ray"


def main(
    preset: Annotated[
        str, typer.Option(help="How much to run: quick, or paper for everything in the MCBN paper.")
    ] = "quick",
    sets: Annotated[list[str] | None, typer.Option("--set", help="Only this set; may be repeated.")] = None,
    methods: Annotated[list[str] | None, typer.Option("--method", help="Only this method; may be repeated.")] = None,
    runner: Annotated[RunnerName, typer.Option(help="Use this machine's cores, or a Ray cluster.")] = RunnerName.local,
    address: Annotated[str | None, typer.Option(help="Address of the Ray cluster. [default: a new local one]")] = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Number of units at once. [default: one per --threads cores]")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Number of threads of each unit.")] = 1,
    device: Annotated[Device, typer.Option(help="Device for training.")] = Device.cpu,
    store: Annotated[Path, typer.Option(help="The file with the results; created if needed.")] = DEFAULT_STORE,
) -> None:
    """Train and score every method on UCI regression sets; needs the sets in a data folder.

    Each result is stored as soon as it is computed. You can stop at any time; the same command continues.

    \b
    python -m experiments uci --preset quick --set yacht --set boston
    python -m experiments uci --preset paper --runner ray --device cuda --store paper.sqlite
    """
    if address is not None and runner is not RunnerName.ray:
        raise UsageError("--address needs --runner ray. Pass both, or neither.")
    require_known("--preset", [preset], uci.PRESETS)
    require_known("--set", sets or (), UCI_SETS)
    require_known("--method", methods or (), uci.METHODS)
    units = uci.units(preset, sets=sets or None, methods=methods or None, device=str(device))
    with Store(store) as opened:
        started, missing = time.perf_counter(), len(opened.missing(units))
        try:
            tally = _run(units, opened, runner, address, workers, threads)
        finally:  # an interrupted run took time too
            if finished := missing - len(opened.missing(units)):
                seconds = time.perf_counter() - started
                uci.note_run(opened, preset, seconds=seconds, workers=workers, finished=finished)
        note(f"{tally.stored} existed, {tally.finished} finished, {tally.failed} failed; results are in {store}")
        if tally.stored + tally.finished:
            print(uci.summary(opened, preset))
    if tally.failed:
        look = f"python -m experiments show {shlex.quote(str(store))} --experiment {units[0].experiment}"
        raise BayesNormError(
            f"{tally.failed} units failed. Run `{look}` to see why. Run the same command again to retry them."
        )


def _run(
    units: list[Unit], store: Store, runner: RunnerName, address: str | None, workers: int | None, threads: int
) -> Tally:
    with unit_bar("units") as bar:
        if runner is RunnerName.ray:
            return run_ray(units, store, address=address, workers=workers, threads=threads, progress=bar)
        return run_local(units, store, workers=workers, threads=threads, progress=bar)
