"""Figure 2 of the MCBN paper, right half: segmentation of CamVid's road scenes, and its uncertainty.

In addition to the paper's maps (sampled statistics in the first two layers, M = 10 or 36, 20 samples, on Bayesian
SegNet), scores show whether uncertainty is high where errors are. The same network is also evaluated with all layers or
the last two sampled, with the running statistics as centre or not, with MC dropout, stochastic batch norm, a correlated
Gaussian and a temperature, and as an ensemble of three networks. The paper's networks were trained at 360 x 480; ours
are trained here at 180 x 240.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ..evidence import show_progress, write_numbers, write_picture
from ..options import OUT, FastestDevice, MeasuredSize, NetworksFolder, OutFolder, Size, Workers, fastest
from ..segmentation.pixels import without_frames
from . import showing
from .measuring import PRESETS, Setup, measure
from .verdicts import claims


def main(
    preset: MeasuredSize = Size.quick,
    networks: NetworksFolder = None,
    photos: Annotated[bool, typer.Option(help="Show the photos in the maps; they are for research only.")] = False,
    device: FastestDevice = None,
    workers: Workers = 1,
    out: OutFolder = OUT,
) -> None:
    """Reproduce figure 2 of the MCBN paper: segmentation of road scenes, and its uncertainty.

    Trains missing networks and continues after an interruption. Needs the data folder.

    \b
    python -m experiments teye-figure2 --preset paper --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    setup = Setup.from_preset(chosen, networks or out / "networks", where, workers)
    measurement = measure(setup, out / "teye_figure2")
    show_progress("")
    told = claims(measurement)
    print(showing.text(measurement, told))
    content = {
        "preset": asdict(chosen),
        "networks": setup.told,
        "methods": without_frames(measurement),
        "claims": [asdict(claim) for claim in told],
    }
    write_numbers(out / "teye_figure2.json", content, where)
    write_picture(out / "teye_figure2.png", showing.draw(measurement))
    for number, frame in enumerate(setup.shown):
        picture = showing.draw_frame(setup, frame, photos=photos)
        write_picture(out / f"teye_figure2_maps_{number}{'_photo' if photos else ''}.png", picture)
