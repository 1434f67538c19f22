"""Channels taken out of a trained ResNet: size against error, NLL and uncertainty, with and without fine-tuning.

What compression does to uncertainty is rarely shown. A trained CIFAR-10 ResNet loses channels by several criteria, down to
several shares of its multiply-adds; its statistics are estimated anew, and it is fine-tuned for two epochs or not at
all: by labels, and by what the whole network says. How each is done (`Way`) is chosen at one share on training images
that this training does not see. What MCBN then says of test images and of SVHN is scored: error, NLL, the AUROC with
which uncertainty tells wrong predictions from right ones, and the one with which it tells SVHN from CIFAR-10.

Beside them stand the whole network as a plain softmax, and its int8 quantisation by torch's own tools, whose uncertainty is
that of its softmax too: batch norm is folded away in it. Times are those of 64 images on one CPU core.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ..evidence import write_numbers, write_picture
from ..image_networks.recipes import set_up_device
from ..known_names import require_known
from ..options import OUT, FastestDevice, OutFolder, Size, fastest
from .measuring import measure
from .presets import CRITERIA, PRESETS
from .showing import draw, text


def main(
    preset: Annotated[Size, typer.Option(help="A look on two cores, or what results come from.")] = Size.quick,
    criterion: Annotated[list[str] | None, typer.Option(help="Criteria to measure; all by default.")] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Size against error, NLL and uncertainty of a trained ResNet that loses channels.

    \b
    python -m experiments prune-channels --preset paper --out out
    """
    chosen, where = PRESETS[preset], fastest(device)
    require_known("--criterion", criterion or (), CRITERIA)
    set_up_device(where)
    ways, rows = measure(chosen, where, out / "prune_channels", criterion or CRITERIA)
    print(text(rows))
    write_picture(out / "prune_channels.png", draw(rows))
    write_numbers(out / "prune_channels.json", {"preset": asdict(chosen), "ways": ways, "rows": rows}, where)
