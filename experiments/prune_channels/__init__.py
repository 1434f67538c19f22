"""Prune channels of a trained ResNet: size against error, NLL and uncertainty, with and without fine-tuning.

The effect of compression on uncertainty is rarely reported. Channels of a trained CIFAR-10 ResNet are pruned by several
criteria, to several fractions of its multiply-adds. Its statistics are estimated again, and it is fine-tuned for two
epochs or not at all, with labels or by distillation from the original network. The fine-tuning settings (`Way`) are
chosen at one fraction on training images that are held out from it. MCBN then predicts test images and SVHN. Scores are
error, NLL, the AUROC of uncertainty for wrong predictions, and its AUROC for SVHN against CIFAR-10.

For comparison there are the original network as a plain softmax, and its int8 quantisation by torch's own tools, which
also has only softmax uncertainty because batch norm is folded into convolutions. Times are for 64 images on one CPU
core.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ..evidence import write_numbers, write_picture
from ..image_networks.recipes import set_up_device
from ..known_names import require_known
from ..options import OUT, FastestDevice, MeasuredSize, OutFolder, Size, fastest
from .measuring import measure
from .presets import CRITERIA, PRESETS
from .showing import draw, text


def main(
    preset: MeasuredSize = Size.quick,
    criterion: Annotated[list[str] | None, typer.Option(help="Criteria to measure. [default: all]")] = None,
    device: FastestDevice = None,
    out: OutFolder = OUT,
) -> None:
    """Measure size against error, NLL and uncertainty of a pruned ResNet.

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
