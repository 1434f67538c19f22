"""Deterministic points instead of random samples.

Along each of R directions v_r of the statistics two points are placed, location +- sqrt(R) v_r, all of the same weight:
their mean is the location and their covariance is the sum of v_r v_r^T. The directions are those that together move the
*outputs* as all of them would (see `directions.py`). They are found when they are first needed, from rows that the fit
held in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_whole
from ..network import State
from ..predictive import Predictive
from .base import Drawable, Engine, Passes, in_coordinates
from .finite import finite_summary, require_finite
from .summing import Take, run_passes, summary_of


@dataclass(frozen=True)
class SigmaPoints(Engine):
    """2 x rank deterministic, equally weighted passes.

    Args:
        rank: R, how many directions; where there are fewer (at most 32 are looked for), all of them.
        vectorize: False runs the points one by one; the numbers are the same.
        chunk: Points per vectorised pass; None chooses by memory.
    """

    rank: int = 8
    vectorize: bool = True
    chunk: int | None = None

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("rank", self.rank)
        if self.chunk is not None:
            require_whole("chunk", self.chunk)

    def predict(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        f = self.outputs(posterior, x)
        predictive = posterior.likelihood.predictive(f)
        require_finite(posterior, x, f, predictive)
        return predictive

    def summary(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        """Predict a summary, to which points are added as they come."""
        states = self._states(posterior)
        passes = [Passes(posterior.executable, states)]
        x = posterior.executable.input(x)

        def each(take: Take) -> None:
            run_passes(passes, 2 * self.rank, x, take, vectorize=self.vectorize, chunk=self.chunk)

        return finite_summary(posterior, x, summary_of(posterior.likelihood, len(x), each))

    def outputs(self, posterior: Drawable, x: Any) -> Tensor:
        """Run the network at each point: outputs (2 rank, batch, *out)."""
        states = self._states(posterior)
        return posterior.executable.run(states, x, vectorize=self.vectorize, chunk=self.chunk)

    def _states(self, posterior: Drawable) -> State:
        """Return the states at all points."""
        chosen = in_coordinates(posterior, "SigmaPoints")
        directions = chosen.directions(self.rank)
        step = directions * (chosen.spread * len(directions) ** 0.5)
        return chosen.state(torch.cat([chosen.location + step, chosen.location - step]))
