"""Sigma points: deterministic points instead of random samples.

Two points, location +- sqrt(R) v_r, lie along each of R directions v_r of the statistics. All points have the same
weight, so their mean is the location, and their covariance is the sum of v_r v_r^T. The directions are chosen to
reproduce the variances of the *outputs* (see `directions.py`). They are computed at first use, from training examples
that the fit kept in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..arguments import hold_plain_numbers, require_whole
from .base import Drawable, Passes, in_coordinates
from .monte_carlo import PassEngine


@dataclass(frozen=True)
class SigmaPoints(PassEngine):
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

    def _passes(self, posterior: Drawable, seed: int) -> tuple[Sequence[Passes], int]:
        chosen = in_coordinates(posterior, "SigmaPoints")
        directions = chosen.directions(self.rank)
        step = directions * (chosen.spread * len(directions) ** 0.5)
        states = chosen.state(torch.cat([chosen.location + step, chosen.location - step]))
        return [Passes(posterior.executable, states)], 2 * len(directions)
