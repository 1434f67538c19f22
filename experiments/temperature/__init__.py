"""Whether doubt gains anything over one constant temperature, on image classifiers.

`calibrate` chooses the effective batch size and the temperature on validation images, and other images judge it beside
a temperature alone (`judging.py`). All images are test images; none that judges has chosen anything.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from bayesnorm.data import load_cifar10, to_network_input

from ..evidence import write_numbers
from ..options import OUT, FastestDevice, OutFolder, fastest
from .judging import CONSTANT, choosers, judge
from .networks import fitted, remembered, trained_network

TRAINING_IMAGES = 5000
"""The first so many are what posteriors are fitted on."""


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    Args:
        images: How many test images there are at most.
        validation: Numbers of validation images.
        layers: How many of the last layers are drawn; None for all.
        folds: How often validation images are drawn.
    """

    images: int
    validation: tuple[int, ...]
    layers: tuple[int | None, ...]
    folds: int = 10


class Size(StrEnum):
    """How much is measured."""

    quick = "quick"
    paper = "paper"


PRESETS = {
    Size.quick: Preset(500, (200,), (1,)),
    Size.paper: Preset(10_000, (500, 1000), (3, None)),
}


def main(
    network: Annotated[str, typer.Argument(help="A network by name, such as resnet32.")] = "resnet32",
    weights: Annotated[
        Path | None, typer.Option(help="Its weights, a safetensors file; by default those of the data folder.")
    ] = None,
    preset: Annotated[Size, typer.Option(help="How much: all of the documentation, or a short look.")] = Size.quick,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Judge `calibrate` on CIFAR-10 networks beside one constant temperature.

    \b
    python -m experiments temperature resnet20 --preset paper --out out
    """
    where, started = fastest(device), time.perf_counter()
    rows = measure(network, weights, PRESETS[preset], where)
    print(text(rows))
    found = {"preset": asdict(PRESETS[preset]), "seconds": round(time.perf_counter() - started), "rows": rows}
    write_numbers(out / f"temperature_{network}.json", found, where)


def measure(name: str, weights: Path | None, preset: Preset, device: str) -> list[dict[str, Any]]:
    """Return a row for each choice of layers, number of validation images and way to choose."""
    network = trained_network(name, weights).to(device)
    x, labels = test_images(preset.images)
    whole = fitted(network, to_network_input(load_cifar10("train", TRAINING_IMAGES)[0]).to(device))
    rows = []
    for layers in preset.layers:
        posterior = whole if layers is None else whole.at_layers(layers)
        point, drawn = remembered(posterior, x.to(device))
        for validation in preset.validation:
            judged = judge(choosers(point, drawn), labels, validation, preset.folds)
            for method, found in judged.items():
                head = {"network": name, "images": len(labels), "layers": layers, "validation": validation}
                rows.append(head | {"method": method} | found.summary(judged[CONSTANT]))
    return rows


def test_images(most: int) -> tuple[Tensor, Tensor]:
    """Return the first test images as networks take them, and their labels."""
    images, labels = load_cifar10("test")
    return to_network_input(images[:most]), torch.as_tensor(labels[:most])


def text(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table."""
    lines = [f"{'layers':>6} {'validation':>10}  {'method':36} {'NLL':>7}  against one temperature  worst fold"]
    for row in rows:
        layers = "all" if row["layers"] is None else f"last {row['layers']}"
        gain = f"{row['difference']:+.4f} ± {row['standard_error']:.4f}"
        lines.append(
            f"{layers:>6} {row['validation']:10d}  {row['method']:36} {row['nll']:.4f}  {gain:>23}  "
            f"{row['worst_fold']:+10.4f}"
        )
    return "\n".join(lines)
