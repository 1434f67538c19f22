"""Stochastic batch norm on images (Atanov et al. 2018, table 1 and figure 1).

LeNet-5 on MNIST, asked about notMNIST; VGG-11 and ResNet-18 on the first five classes of CIFAR-10, asked about the
other five. Stochastic batch norm, dropout and ensembles, each with and without stochastic batch norm, as in the paper;
beside them MCBN, whose statistics keep their correlation, and its low-rank Gaussian.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..evidence import write_numbers, write_picture
from ..image_networks.asking import ask_each
from ..options import OUT, Compiled, CompiledSteps, FastestDevice, OutFolder, Size, Workers, fastest
from .measuring import PRESETS, measure_setting
from .showing import cells, draw, text


def main(
    preset: Annotated[Size, typer.Option(help="A look on two cores, or what results come from.")] = Size.quick,
    setting: Annotated[list[str] | None, typer.Option(help="Rows of the table, such as vgg11; all by default.")] = None,
    members: Annotated[int | None, typer.Option(min=2, help="Networks of an ensemble, if not the preset's.")] = None,
    networks: Annotated[Path | None, typer.Option(help="Folder of trained networks; by default in --out.")] = None,
    workers: Workers = 1,
    compiled: CompiledSteps = Compiled.graph,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Error, NLL and entropies of stochastic batch norm, dropout and ensembles (Atanov et al. 2018).

    Trains what is missing, and goes on where it was interrupted. MNIST comes by `bayesnorm data get mnist`.

    \b
    python -m experiments atanov-table1 --preset paper --setting resnet18 --members 3 --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    folders = networks or out / "networks", out / "atanov_table1"
    count = chosen.members if members is None else members

    def measure(name: str) -> dict[str, Any]:
        one = chosen.settings[name]
        return measure_setting(one, chosen, count, where, folders[0], folders[1] / name, workers, compiled.mode)

    found = ask_each("--setting", chosen.settings, setting, measure)
    print(text(found))
    write_picture(out / "atanov_figure1.png", draw(found))
    write_numbers(out / "atanov_table1.json", {"settings": found, "cells": cells(found)}, where)
