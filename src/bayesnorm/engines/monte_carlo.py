"""Draw states, run the network under each, mix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..arguments import hold_plain_ints, require_whole
from ..predictive import Predictive
from .base import Engine

if TYPE_CHECKING:
    from ..posterior import Posterior


@dataclass(frozen=True)
class MonteCarlo(Engine):
    """Plain Monte Carlo: p(y | x) is about the mean over T draws of p(y | x, state_t).

    Args:
        samples: T, how many draws.
        vectorize: False runs draws one by one; the numbers are the same.
        chunk: Draws per vectorised pass; None chooses by `block_bytes`.
        block_bytes: Memory of the largest activation in a pass; None chooses by device (a CPU's caches, a share
            of a GPU's free memory).
    """

    samples: int = 64
    vectorize: bool = True
    chunk: int | None = None
    block_bytes: int | None = None

    def __post_init__(self) -> None:
        hold_plain_ints(self)
        require_whole("samples", self.samples)
        if self.chunk is not None:
            require_whole("chunk", self.chunk)
        if self.block_bytes is not None:
            require_whole("block_bytes", self.block_bytes)

    def outputs(self, posterior: Posterior, x: Any, seed: int = 0) -> Tensor:
        """Network outputs under each draw, (samples, batch, *out)."""
        return posterior.outputs(
            self.samples, x, seed, vectorize=self.vectorize, chunk=self.chunk, block_bytes=self.block_bytes
        )

    def predict(self, posterior: Posterior, x: Any, seed: int = 0) -> Predictive:
        return posterior.likelihood.predictive(self.outputs(posterior, x, seed))
