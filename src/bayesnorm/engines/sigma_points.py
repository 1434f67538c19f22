"""Sigma points: deterministic points instead of random samples.

Two points, location +- sqrt(R) v_r, lie along each of R directions v_r of the statistics. All points have the same
weight, so their mean is the location, and their covariance is the sum of v_r v_r^T. The directions are chosen to
reproduce the variances of the *outputs* (see `directions.py`). They are computed at first use, from training examples
that the fit kept in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import hold_plain_numbers, require_whole
from ..network import State, delayed_checks
from ..predictive import Predictive
from .base import Drawable, Engine, Passes, in_coordinates
from .finite import finite_summary, require_finite
from .summing import Take, run_passes, summary_of


@dataclass(frozen=True)
class SigmaPoints(Engine):
    """Propagate the posterior by 2 x rank deterministic, equally weighted forward passes.

    The passes lie along the directions of the statistics that change the outputs most. The posterior must be over
    batch-norm statistics.

    Args:
        rank: Number of directions. If fewer exist (at most 32 are computed), all of them are used. Default: 8.
        vectorize: Whether several points run in one vectorised forward pass. The results are the same. Default: True.
        chunk: Number of points per vectorised pass. Default: None, chosen by memory.
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
        with delayed_checks() as passed:
            f = self.outputs(posterior, x)
            predictive = posterior.likelihood.predictive(f)
            require_finite(posterior, x, f, predictive, passed)
        return predictive

    def summary(self, posterior: Drawable, x: Any, seed: int = 0) -> Predictive:
        """Return a summary. Points are added one block at a time."""
        states = self._states(posterior)
        passes = [Passes(posterior.executable, states)]

        def run_parts(take: Take) -> None:
            run_passes(passes, 2 * self.rank, x, take, vectorize=self.vectorize, chunk=self.chunk)

        with delayed_checks() as passed:
            x = posterior.executable.input(x)
            return finite_summary(posterior, x, summary_of(posterior.likelihood, len(x), run_parts), passed)

    def outputs(self, posterior: Drawable, x: Any) -> Tensor:
        """Run the network at each point and return the outputs, (2 rank, batch, *out)."""
        states = self._states(posterior)
        return posterior.executable.run(states, x, vectorize=self.vectorize, chunk=self.chunk)

    def _states(self, posterior: Drawable) -> State:
        """Return the states at all points."""
        chosen = in_coordinates(posterior, "SigmaPoints")
        directions = chosen.directions(self.rank)
        step = directions * (chosen.spread * len(directions) ** 0.5)
        return chosen.state(torch.cat([chosen.location + step, chosen.location - step]))
