"""Figures and tables of Kendall and Gal (2017) on road scenes: which doubts do we need?

Classes of pixels by a network with a softmax, under dropout or MCBN (epistemic uncertainty), with logits whose noise it
predicts (aleatoric), and both; trained on a quarter, half and all of the frames, and on frames of the day alone, which
are then asked about dusk. And a regression that needs no labels: the red channel out of the green one, with Laplace
noise.

Differences to the paper: its network is a DenseNet trained at 360 x 480 and has dropout everywhere; its regression is
depth, for which there are no free data here.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..evidence import show_progress, write_numbers, write_picture
from ..options import OUT, FastestDevice, OutFolder, Size, Workers, fastest
from ..segmentation.pixels import without_frames
from . import showing
from .measuring import PRESETS, Networks, measure
from .verdicts import claims


def main(
    preset: Annotated[Size, typer.Option(help="A look on two cores, or what results come from.")] = Size.quick,
    networks: Annotated[Path | None, typer.Option(help="Folder of trained networks; by default in --out.")] = None,
    device: FastestDevice = None,
    workers: Workers = 1,
    out: OutFolder = OUT,
) -> None:
    """Epistemic and aleatoric uncertainty of pixels: precision, calibration, more data, other light, classes and a colour.

    Trains what is missing, and goes on where it was interrupted. Needs the data folder.

    \b
    python -m experiments kendall-segmentation --preset paper --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    made = Networks(chosen, networks or out / "networks", where)
    made.train_missing(workers)
    found = measure(made, out / "kendall_segmentation")
    show_progress("")
    told = claims(found)
    print(showing.text(found, told))
    content = {"preset": asdict(chosen), **without_frames(found), "claims": [asdict(claim) for claim in told]}
    write_numbers(out / "kendall_segmentation.json", content, where)
    write_picture(out / "kendall_segmentation.png", showing.draw_classes(found))
    write_picture(out / "kendall_red.png", showing.draw_red(found))
    write_picture(out / "kendall_red_maps.png", showing.draw_red_maps(made))
