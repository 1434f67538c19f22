"""Figures and tables of Kendall and Gal (2017) on road scenes: which uncertainties are needed?

Pixels are classified with a softmax, under dropout or MCBN (epistemic uncertainty), with logits whose noise the network
predicts (aleatoric uncertainty), and with both. Networks are trained on a quarter, half and all of the images, and on
images by day only, and then tested at dusk. A second task is a regression without labels: the red channel from the
green one, with Laplace noise.

Differences from the paper: its network is a DenseNet trained at 360 x 480 with dropout everywhere, and its regression
is depth, for which there are no free data here.
"""

from __future__ import annotations

from dataclasses import asdict

from ..evidence import show_progress, write_numbers, write_picture
from ..options import OUT, FastestDevice, MeasuredSize, NetworksFolder, OutFolder, Size, Workers, fastest
from ..segmentation.pixels import without_frames
from . import showing
from .measuring import PRESETS, Networks, measure
from .verdicts import claims


def main(
    preset: MeasuredSize = Size.quick,
    networks: NetworksFolder = None,
    device: FastestDevice = None,
    workers: Workers = 1,
    out: OutFolder = OUT,
) -> None:
    """Measure epistemic and aleatoric uncertainty of pixels, with more data and in another light.

    Trains missing networks and continues after an interruption. Needs the data folder.

    \b
    python -m experiments kendall-segmentation --preset paper --out out
    """
    where, chosen = fastest(device), PRESETS[preset]
    made = Networks(chosen, networks or out / "networks", where)
    made.train_missing(workers)
    measurement = measure(made, out / "kendall_segmentation")
    show_progress("")
    told = claims(measurement)
    print(showing.text(measurement, told))
    content = {"preset": asdict(chosen), **without_frames(measurement), "claims": [asdict(claim) for claim in told]}
    write_numbers(out / "kendall_segmentation.json", content, where)
    write_picture(out / "kendall_segmentation.png", showing.draw_classes(measurement))
    write_picture(out / "kendall_red.png", showing.draw_red(measurement))
    write_picture(out / "kendall_red_maps.png", showing.draw_red_maps(made))
