"""Options of a run of a network, and the object that stores its outputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypedDict

from torch import Tensor

from ...progress import Progress
from .affine import State

Take = Callable[[slice, slice, Tensor], None]
"""A function of examples, samples and their outputs; see `Executable.each`."""


class RunOptions(TypedDict, total=False):
    """How many samples and examples run at once.

    Args:
        vectorize: Whether many samples may run at once; False uses the plain loop over samples.
        chunk: Number of samples in a vectorised forward pass; None chooses by `block_bytes`.
        block_bytes: Memory limit for the largest activation of a forward pass; None chooses by device.
    """

    vectorize: bool
    chunk: int | None
    block_bytes: int | None


class Outputs:
    """Stores outputs under n states in `all`, (n, batch, *out); a `Take`. It reports its progress."""

    all: Tensor

    def __init__(self, states: State | None, x: Tensor, progress: Progress | None = None) -> None:
        self._shape = 1 if states is None else len(next(iter(states.values()))), len(x)
        self._progress, self._stored = progress, 0

    def __call__(self, rows: slice, samples: slice, outputs: Tensor) -> None:
        if not hasattr(self, "all"):
            self.all = outputs.new_empty(*self._shape, *outputs.shape[2:])
        self.all[samples, rows] = outputs
        self._stored += outputs.shape[0] * outputs.shape[1]
        if self._progress is not None:
            self._progress(self._stored, math.prod(self._shape))
