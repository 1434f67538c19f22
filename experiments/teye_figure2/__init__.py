"""Figure 2 of the MCBN paper, right half: segmentations of CamVid's road scenes, and where they are in uncertainty.

Beside the paper's maps (statistics of the first two layers drawn, M = 10 or 36, 20 samples, on Bayesian SegNet) numbers
that say whether uncertainty is where the errors are, and what else the same network says: all layers or the last two drawn,
about running statistics or not, MC dropout, stochastic batch norm, a correlated Gaussian, a temperature, and three
networks. The paper's networks were trained elsewhere at 360 x 480; ours are trained here, at 180 x 240.
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
from .measuring import PRESETS, Setup, measure
from .verdicts import claims


def main(
    preset: Annotated[Size, typer.Option(help="A look on two cores, or what results come from.")] = Size.quick,
    networks: Annotated[Path | None, typer.Option(help="Folder of trained networks; by default in --out.")] = None,
    photos: Annotated[bool, typer.Option(help="Whether maps show the photos, which are for research only.")] = False,
    device: FastestDevice = None,
    workers: Workers = 1,
    out: OutFolder = OUT,
) -> None:
    """Figure 2 of the MCBN paper: segmentations of road scenes, their uncertainty, and what it is worth.

    Trains what is missing, and goes on where it was interrupted. Needs the data folder.

    \b
    python -m experiments teye-figure2 --preset paper --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    setup = Setup.of(chosen, networks or out / "networks", where, workers)
    found = measure(setup, out / "teye_figure2")
    show_progress("")
    told = claims(found)
    print(showing.text(found, told))
    content = {
        "preset": asdict(chosen),
        "networks": setup.told,
        "methods": without_frames(found),
        "claims": [asdict(claim) for claim in told],
    }
    write_numbers(out / "teye_figure2.json", content, where)
    write_picture(out / "teye_figure2.png", showing.draw(found))
    for number, frame in enumerate(setup.shown):
        picture = showing.draw_frame(setup, frame, photos=photos)
        write_picture(out / f"teye_figure2_maps_{number}{'_photo' if photos else ''}.png", picture)
