"""Options of several experiments."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer

OUT = Path("out")
OutFolder = Annotated[Path, typer.Option("--out", help="Output folder; created if needed.")]
"""The type of the option --out, whose default is `OUT`."""


class Size(StrEnum):
    """How much to measure: a short test on two cores (quick), or the documented results (paper)."""

    quick = "quick"
    paper = "paper"


MeasuredSize = Annotated[
    Size,
    typer.Option(help="How much to measure: a short test on two cores (quick), or the documented results (paper)."),
]
"""The type of the option --preset of most experiments, whose default is `Size.quick`."""

NetworksFolder = Annotated[Path | None, typer.Option(help="Folder of trained networks. [default: in --out]")]
"""The type of the option --networks of experiments that train networks, whose default is None."""


class Device(StrEnum):
    """The device."""

    cpu = "cpu"
    cuda = "cuda"


class Compiled(StrEnum):
    """How training steps run."""

    no = "no"
    graph = "graph"
    default = "default"
    reduce_overhead = "reduce-overhead"
    max_autotune = "max-autotune"

    @property
    def mode(self) -> bool | str:
        """Return the value for `bayesnorm.training.train`."""
        return False if self is Compiled.no else str(self)


CompiledSteps = Annotated[
    Compiled,
    typer.Option("--compiled", help="How training steps run: recorded on a GPU, or in a mode of torch.compile."),
]
"""The type of the option --compiled, whose default is `Compiled.graph`."""

Workers = Annotated[
    int, typer.Option(min=1, help="Number of networks that are trained at once, each in its own process.")
]
"""The type of the option --workers of experiments that train networks, whose default is 1."""

FastestDevice = Annotated[Device | None, typer.Option("--device", help="The device. [default: cuda if there is a GPU]")]
"""The type of the option --device, whose default is None; see `fastest`."""


def fastest(device: Device | None) -> str:
    """Return the name of the given device, or of the GPU if there is one."""
    return str(device or (Device.cuda if torch.cuda.is_available() else Device.cpu))
