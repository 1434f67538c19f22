"""Separate noise in the data from uncertainty about the network (Kendall and Gal 2017), in four plots.

Networks predict a mean and a log-variance (`HeteroscedasticGaussian`). The posterior over them is MCBN, or an ensemble
of five networks. Aleatoric uncertainty is the predicted variance, and epistemic uncertainty is the disagreement of
samples.

- gap: one input, noise that depends on it, and a gap in the data. Aleatoric uncertainty should follow the noise,
  epistemic uncertainty the gap.
- size: a quarter, half and all of the training rows (power, protein). Epistemic uncertainty should fall, aleatoric
  uncertainty should not.
- shift: rows of another distribution. Epistemic uncertainty should rise.
- retention: error of the kept rows when the most uncertain are dropped, and calibration, with each part alone.

Targets of power and protein are in standard deviations of the training rows; the sets need the data folder
(BAYESNORM_DATA).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import torch
import typer

from ..evidence import write_numbers, write_picture
from ..options import OUT, OutFolder
from .gap import Gap, measure_gap
from .medians import Medians, measure_shift, measure_sizes
from .retention import Retention, measure_retention


class Picture(StrEnum):
    """The four plots."""

    gap = "gap"
    size = "size"
    shift = "shift"
    retention = "retention"


EVIDENCE: dict[Picture, Callable[[], Gap | Medians | Retention]] = {
    Picture.gap: measure_gap,
    Picture.size: measure_sizes,
    Picture.shift: measure_shift,
    Picture.retention: measure_retention,
}


def main(
    picture: Annotated[Picture, typer.Argument(help="Which of the four plots; all but gap need the data folder.")],
    out: OutFolder = OUT,
) -> None:
    """Plot epistemic and aleatoric uncertainty (Kendall and Gal 2017): gap, size, shift or retention.

    \b
    python -m experiments kendall-uncertainty gap --out out
    """
    torch.set_num_threads(1)  # such small networks only wait for a second core
    result = EVIDENCE[picture]()
    print(result.table())
    write_numbers(out / f"noise_{picture}.json", asdict(result))
    write_picture(out / f"noise_{picture}.png", result.draw())
