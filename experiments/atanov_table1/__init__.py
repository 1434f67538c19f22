"""Measure stochastic batch norm on images (Atanov et al. 2018, table 1 and figure 1).

LeNet-5 is trained on MNIST and tested on notMNIST too; VGG-11 and ResNet-18 are trained on the first five classes of
CIFAR-10 and tested on the other five too. Methods are stochastic batch norm, and dropout and ensembles with and without
it, as in the paper. In addition there are MCBN, whose statistics keep their correlation, and its low-rank Gaussian.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..evidence import write_numbers, write_picture
from ..image_networks.asking import ask_each
from ..options import (
    OUT,
    Compiled,
    CompiledSteps,
    FastestDevice,
    MeasuredSize,
    NetworksFolder,
    OutFolder,
    Size,
    Workers,
    fastest,
)
from .measuring import PRESETS, measure_setting
from .showing import cells, draw, text


def main(
    preset: MeasuredSize = Size.quick,
    setting: Annotated[list[str] | None, typer.Option(help="Rows of the table, such as vgg11. [default: all]")] = None,
    members: Annotated[
        int | None, typer.Option(min=2, help="Number of networks of an ensemble. [default: the preset's]")
    ] = None,
    networks: NetworksFolder = None,
    workers: Workers = 1,
    compiled: CompiledSteps = Compiled.graph,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Measure error, NLL and entropies of stochastic batch norm, dropout and ensembles (Atanov et al. 2018).

    Trains missing networks and continues after an interruption. Get MNIST by `python -m experiments data get mnist`.

    \b
    python -m experiments atanov-table1 --preset paper --setting resnet18 --members 3 --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    folders = networks or out / "networks", out / "atanov_table1"
    count = chosen.members if members is None else members

    def measure(name: str) -> dict[str, Any]:
        one = chosen.settings[name]
        return measure_setting(one, chosen, count, where, folders[0], folders[1] / name, workers, compiled.mode)

    result = ask_each("--setting", chosen.settings, setting, measure)
    print(text(result))
    write_picture(out / "atanov_figure1.png", draw(result))
    write_numbers(out / "atanov_table1.json", {"settings": result, "cells": cells(result)}, where)
