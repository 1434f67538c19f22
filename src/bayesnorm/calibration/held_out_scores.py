"""Score predictions of held-out examples under any noise, and find the noise with the best score.

`bn.calibrate` and the tables both fit noise and temperature here. They differ in where predictions come from:
`SampledOutputs` has the outputs of samples, and the tables also have members that predict some rows only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import BayesNormError
from ..likelihoods import Likelihood, RealTargets
from ..metrics import crps_points, mean_over_points, pll_points, scored_labels
from ..predictive import ClassificationPredictive, NormalNoise, Predictive, RegressionPredictive, as_targets

Score = Literal["crps", "pll", "nll"]

Between = tuple[float, float]

# Golden-section steps in the search for a noise. Its relative error is then about 1e-5, and that of its score far less.
REFINEMENTS = 20

# Grid points of the search for a noise.
GRID = 25

GOLDEN = (math.sqrt(5) - 1) / 2


class HeldOutScores(ABC):
    """Predictions of examples with known targets, scored under a likelihood whose noise may be changed.

    Args:
        likelihood: The meaning of the outputs.
        score_name: "crps", "pll" (negative log density) or "nll"; None for the likelihood's default.
        weights: Weight of each example, (rows,); None for equal weights.
    """

    def __init__(self, likelihood: Likelihood, score_name: Score | None = None, weights: Tensor | None = None) -> None:
        self.likelihood, self.score_name, self.weights = likelihood, score_name, weights

    @abstractmethod
    def points(self, likelihood: Likelihood) -> tuple[Tensor, Tensor | None]:
        """Return the score of every target (0 if missing) under a likelihood, and a mask of those present."""

    @abstractmethod
    def noise_range(self) -> tuple[Tensor, Tensor]:
        """Return the lower and upper ends of the search for the noise, in the shape of the noise."""

    def score(self, likelihood: Likelihood) -> Tensor:
        """Return the score under a likelihood, one number; lower is better."""
        points, seen = self.points(likelihood)
        if self.weights is None:
            return mean_over_points(points, seen)
        return self._weighted(points).mean()

    def score_of_outputs(self, likelihood: Likelihood) -> Tensor:
        """Return the score of each output, for a likelihood with one noise for each; their mean is the score."""
        points, seen = self.points(likelihood)
        # Scaled so that the mean over outputs is the mean over the targets that are present.
        share = 1.0 if seen is None else float(seen.double().mean())
        points = self._weighted(points)
        points = points.movedim(likelihood.axis, -1) if isinstance(likelihood, RealTargets) else points
        return points.flatten(0, -2).mean(0) / share

    def by_row(self, likelihood: Likelihood) -> Tensor:
        """Return the score of every example, (rows,). Their mean is the score, also if some targets are missing."""
        points, seen = self.points(likelihood)
        rows = self._weighted(points.reshape(len(points), -1).double()).sum(1)
        return rows * (len(rows) / (points.numel() if seen is None else int(seen.sum())))

    def best_noise(
        self, between: Between | None = None, refinements: int = REFINEMENTS, grid: int = GRID
    ) -> tuple[Tensor, Tensor]:
        """Return the noise with the lowest score, and that score; one for each output if the likelihood has several.

        Args:
            between: The search range; None for `noise_range`.
            refinements: Number of golden-section steps after the grid search.
            grid: Number of grid points.
        """
        low, high = self.noise_range()
        if between is not None:
            low, high = (torch.full_like(low, end, dtype=torch.float64) for end in between)
        return minimise_on_log_scale(self.noise_objective(), low, high, grid, refinements)

    def noise_objective(self) -> Callable[[Tensor], Tensor]:
        """Return the function that `best_noise` minimises: the score, or those of all outputs, for a noise."""

        def objective(noise: Tensor) -> Tensor:
            likelihood = self.likelihood.with_noise(noise)
            return self.score_of_outputs(likelihood) if noise.dim() else self.score(likelihood)

        return objective

    def with_best_noise(self, refinements: int = REFINEMENTS, grid: int = GRID) -> Likelihood:
        """Return the likelihood with the noise of the lowest score."""
        return self.likelihood.with_noise(self.best_noise(None, refinements, grid)[0])

    def _weighted(self, points: Tensor) -> Tensor:
        if self.weights is None:
            return points
        weights = self.weights.to(points.device)
        return points * (weights / weights.mean()).view(-1, *[1] * (points.dim() - 1))


def significantly_better(simple: Tensor, other: Tensor, evidence: float) -> bool:
    """Return whether the mean score is lower by more than `evidence` standard errors of the difference per example."""
    gain = simple - other
    return len(gain) > 1 and float(gain.mean()) > evidence * float(gain.std()) / math.sqrt(len(gain))


def score_points(predictive: Predictive, y: Any, score: Score | None) -> tuple[Tensor, Tensor | None]:
    """Return the score of every target (lower is better, 0 if missing), and a mask of those present (None: all)."""
    regression = isinstance(predictive, RegressionPredictive)
    score = score or ("crps" if regression else "nll")
    if score not in (("crps", "pll") if regression else ("nll",)):
        works = '"crps" or "pll"' if regression else '"nll"'
        raise BayesNormError(f"score must be {works} for a {type(predictive).__name__}, got {score!r}.")
    if isinstance(predictive, RegressionPredictive):
        _, seen = predictive.observed(y)
        if score == "pll":
            return -pll_points(predictive, y), seen
        # The CRPS of a Gaussian with the same moments would ignore the shape of other noise.
        normal = isinstance(predictive.noise, NormalNoise)
        return predictive.crps(y) if normal else crps_points(predictive, y, form="mixture"), seen
    points = -predictive.log_prob(y)
    if isinstance(predictive, ClassificationPredictive) and predictive.ignore_index is not None:
        return points, scored_labels(predictive, as_targets(y, points.device), None)
    return points, None


def minimise_on_log_scale(
    objective: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, grid: int = 25, refinements: int = 30
) -> tuple[Tensor, Tensor]:
    """Return where in [low, high] each of several functions is smallest, and its value there.

    It searches a grid, and then refines by golden sections.

    Args:
        objective: Returns the values of the functions at one positive number each; both have the shape of `low`.
        low: Lower ends, positive.
        high: Upper ends.
        grid: Number of grid points, evenly spaced in the logarithm.
        refinements: Number of golden-section steps around the best grid point.
    """
    low, high = low.double().log(), high.double().log()
    points = torch.linspace(0, 1, grid, dtype=torch.float64, device=low.device)
    looks = torch.stack([objective((low + p * (high - low)).exp()).double() for p in points])
    looks = torch.where(torch.isfinite(looks), looks, torch.inf)
    best = looks.argmin(0)
    step = (high - low) / (grid - 1)
    left, right = torch.maximum(low + (best - 1) * step, low), torch.minimum(low + (best + 1) * step, high)
    value, where = looks.amin(0), low + best * step
    a, b = right - GOLDEN * (right - left), left + GOLDEN * (right - left)
    at_a, at_b = objective(a.exp()).double(), objective(b.exp()).double()
    for _ in range(refinements):
        lower = at_a < at_b
        left, right = torch.where(lower, left, a), torch.where(lower, b, right)
        new = torch.where(lower, right - GOLDEN * (right - left), left + GOLDEN * (right - left))
        at_new = objective(new.exp()).double()
        a, b = torch.where(lower, new, b), torch.where(lower, a, new)
        at_a, at_b = torch.where(lower, at_new, at_b), torch.where(lower, at_a, at_new)
        better = at_new < value
        value, where = torch.where(better, at_new, value), torch.where(better, new, where)
    return where.exp(), value
