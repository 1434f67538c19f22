"""Measure mutual information against the batch size (Mukhoti et al. 2020, figure 1 and table 1).

The paper retrains a network for every batch size M. It finds that the mutual information of MCBN falls to about 0 as M
grows, inside and outside of the training distribution, while accuracy stays. This is repeated here, with some
additions: one network for all sizes (the effective batch size of `at_batch_size`); how well mutual information still
*ranks* images outside of the training distribution (AUROC); the ELBO over M with its choice and the test NLL there; and
dropout and mean field in a network with batch norm, which the paper shows to be legitimate.

Fluctuations fall as 1 / sqrt(M), so mutual information falls as 1 / M, both inside and outside. Whether the two can be
distinguished depends on their ratio, which stays.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
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
from .measuring import PRESETS, measure_panel
from .showing import claims, draw, text


def main(
    preset: MeasuredSize = Size.quick,
    panel: Annotated[list[str] | None, typer.Option(help="Panels to measure. [default: all]")] = None,
    network: Annotated[
        str | None, typer.Option(help="Use this network for all panels. [default: the preset's]")
    ] = None,
    networks: NetworksFolder = None,
    workers: Workers = 1,
    compiled: CompiledSteps = Compiled.graph,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Measure mutual information inside and outside against the batch size (Mukhoti et al. 2020).

    Trains missing networks and continues after an interruption. Get Fashion-MNIST and MNIST by
    `python -m experiments data get`.

    \b
    python -m experiments mukhoti-figure1 --preset paper --panel cifar10 --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    asked = {name: one if network is None else replace(one, network=network) for name, one in chosen.panels.items()}
    folders = networks or out / "networks", out / "mukhoti_figure1"

    def measure(name: str) -> dict[str, Any]:
        return measure_panel(asked[name], chosen, where, folders[0], folders[1] / name, workers, compiled.mode)

    result = ask_each("--panel", asked, panel, measure)
    show(result, out)
    write_numbers(out / "mukhoti_figure1.json", {"panels": result, "claims": claims(result)}, where)


def show(result: dict[str, Any], out: Path) -> None:
    """Print the results, and write the plot."""
    print(text(result))
    write_picture(out / "mukhoti_figure1.png", draw(result))
