"""Whether uncertainty gains anything over one constant temperature, on image classifiers.

- `calibrate` chooses the effective batch size and the temperature (`judging.py`);
- a temperature for each image rises with its uncertainty (`uncertainty.py`), on images as they are and on corrupted ones.

Both choose on validation images, and other images judge them beside one constant temperature. All are test images; none
that judges has chosen anything.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..evidence import write_numbers
from ..options import OUT, FastestDevice, OutFolder, fastest
from .measuring import PRESETS, Part, Size, measure
from .showing import text


def main(
    part: Annotated[Part, typer.Argument(help="What is measured.")],
    network: Annotated[str, typer.Argument(help="A network by name, such as resnet32.")] = "resnet32",
    weights: Annotated[
        Path | None, typer.Option(help="Its weights, a safetensors file; by default those of the data folder.")
    ] = None,
    preset: Annotated[
        Size, typer.Option(help="How much: a short look, an hour of a CPU, or all, for a GPU.")
    ] = Size.quick,
    name: Annotated[str | None, typer.Option(help="What results are called; by default as the network.")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Folder for networks' outputs, from which a command that was cut off goes on.")
    ] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Judge `calibrate`, and a temperature that listens to uncertainty, beside one constant temperature on CIFAR-10.

    \b
    python -m experiments temperature calibrate resnet20 --preset cpu --out out
    """
    where, started = fastest(device), time.perf_counter()
    found = measure(part, network, weights, PRESETS[preset], where, keep)
    print(text(found))
    head = {"network": name or network, "preset": asdict(PRESETS[preset])}
    seconds = round(time.perf_counter() - started)
    write_numbers(out / f"temperature_{part}_{name or network}.json", {**head, "seconds": seconds, **found}, where)
