"""Deterministic points instead of random draws.

Along each of R directions v_r of the statistics two points are placed, centre +- sqrt(R) v_r, all of the same weight:
their mean is the centre and their covariance is the sum of v_r v_r^T. The directions are those that
together move the *outputs* as all of them would (see `directions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..arguments import hold_plain_ints, require_whole
from ..predictive import Predictive
from .base import Engine, in_coordinates

if TYPE_CHECKING:
    from ..posterior import Posterior


@dataclass(frozen=True)
class SigmaPoints(Engine):
    """2 x rank deterministic, equally weighted passes.

    Args:
        rank: R, how many directions; where there are fewer (a fit keeps at most 32), all of them.
        vectorize: False runs the points one by one; the numbers are the same.
        chunk: Points per vectorised pass; None chooses by memory.
    """

    rank: int = 8
    vectorize: bool = True
    chunk: int | None = None

    def __post_init__(self) -> None:
        hold_plain_ints(self)
        require_whole("rank", self.rank)
        if self.chunk is not None:
            require_whole("chunk", self.chunk)

    def predict(self, posterior: Posterior, x: Any, seed: int = 0) -> Predictive:
        return posterior.likelihood.predictive(self.outputs(posterior, x))

    def outputs(self, posterior: Posterior, x: Any) -> Tensor:
        """Network outputs at each point, (2 rank, batch, *out)."""
        chosen = in_coordinates(posterior, "SigmaPoints")
        directions = chosen.directions(self.rank)
        step = directions * (chosen.spread * len(directions) ** 0.5)
        states = chosen.state(torch.cat([chosen.centre + step, chosen.centre - step]))
        return posterior.executable.run(states, x, vectorize=self.vectorize, chunk=self.chunk)
