"""Noise in the data and uncertainty about the network, told apart (Kendall and Gal 2017): four pictures of evidence.

Networks predict a mean and a log-variance (`HeteroscedasticGaussian`); the posterior over them is MCBN's, or that of
five networks from different weights. Aleatoric uncertainty is what the log-variance says, epistemic what the samples disagree
about.

- gap: one input, noise that depends on it, and a gap in the data. Aleatoric should follow the noise, epistemic the gap.
- size: a quarter, half and all of the training rows (power, protein). Epistemic should fall, aleatoric should not.
- shift: rows of another distribution. Epistemic should rise.
- retention: error of the rows that are kept when the most uncertain are dropped, and calibration, with each part alone.

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
    """The four pictures."""

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
    picture: Annotated[Picture, typer.Argument(help="Which of the four pictures; all but gap need the data folder.")],
    out: OutFolder = OUT,
) -> None:
    """Both parts of the uncertainty, told apart (Kendall and Gal 2017): gap, size, shift or retention.

    \b
    python -m experiments kendall-uncertainty gap --out out
    """
    torch.set_num_threads(1)  # networks this small only wait for a second core
    found = EVIDENCE[picture]()
    print(found.table())
    write_numbers(out / f"noise_{picture}.json", asdict(found))
    write_picture(out / f"noise_{picture}.png", found.draw())
