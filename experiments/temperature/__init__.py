"""Test whether uncertainty improves on one constant temperature, on image classifiers.

- `calibrate` chooses the effective batch size and the temperature (`judging.py`);
- a temperature for each image rises with its uncertainty (`uncertainty.py`), on clean and on corrupted images.

Both are chosen on validation images and scored on other images, in comparison with one constant temperature. All are
test images; no image is used for both.
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
    part: Annotated[Part, typer.Argument(help="What to measure.")],
    network: Annotated[str, typer.Argument(help="The name of a network, such as resnet32.")] = "resnet32",
    weights: Annotated[
        Path | None, typer.Option(help="Its weights, a safetensors file. [default: those of the data folder]")
    ] = None,
    preset: Annotated[
        Size, typer.Option(help="How much to measure: a short test, about one CPU-hour, or everything, for a GPU.")
    ] = Size.quick,
    name: Annotated[str | None, typer.Option(help="Name of the results. [default: the network]")] = None,
    keep: Annotated[
        Path | None, typer.Option(help="Folder for the networks' outputs, from which an interrupted command continues.")
    ] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Compare `calibrate`, and a temperature that depends on uncertainty, with one constant temperature on CIFAR-10.

    \b
    python -m experiments temperature calibrate resnet20 --preset cpu --out out
    """
    where, started = fastest(device), time.perf_counter()
    measurement = measure(part, network, weights, PRESETS[preset], where, keep)
    print(text(measurement))
    head = {"network": name or network, "preset": asdict(PRESETS[preset])}
    seconds = round(time.perf_counter() - started)
    write_numbers(
        out / f"temperature_{part}_{name or network}.json", {**head, "seconds": seconds, **measurement}, where
    )
