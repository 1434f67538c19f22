"""Options that several experiments have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer

OUT = Path("out")
OutFolder = Annotated[Path, typer.Option("--out", help="Folder for what is written; made if it is not there.")]
"""The type of the option --out, whose default is `OUT`."""


class Size(StrEnum):
    """How much is measured: a look on two cores, or what results come from."""

    quick = "quick"
    paper = "paper"


class Device(StrEnum):
    """Where networks run."""

    cpu = "cpu"
    cuda = "cuda"


class Compiled(StrEnum):
    """How steps of training run."""

    no = "no"
    graph = "graph"
    default = "default"
    reduce_overhead = "reduce-overhead"
    max_autotune = "max-autotune"

    @property
    def mode(self) -> bool | str:
        """What `bayesnorm.training.train` calls it."""
        return False if self is Compiled.no else str(self)


CompiledSteps = Annotated[
    Compiled,
    typer.Option("--compiled", help="How steps run: recorded where there is a GPU, or in a mode of torch.compile."),
]
"""The type of the option --compiled, whose default is `Compiled.graph`."""

Workers = Annotated[int, typer.Option(min=1, help="Networks that are trained at once, each by a process.")]
"""The type of the option --workers of experiments that train networks, whose default is 1."""

FastestDevice = Annotated[
    Device | None, typer.Option("--device", help="Where networks run; by default cuda where there is a GPU.")
]
"""The type of the option --device, whose default is None; see `fastest`."""


def fastest(device: Device | None) -> str:
    """Return the name of the given device, or of the GPU where there is one."""
    return str(device or (Device.cuda if torch.cuda.is_available() else Device.cpu))
