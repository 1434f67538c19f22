"""Outputs of posteriors on validation data, sampled once and then scored under any noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ..engines import MonteCarlo, require_finite
from ..errors import BayesNormError
from ..likelihoods import Gaussian, Likelihood
from ..likelihoods.real_targets import RealTargets
from ..metrics import crps_points, pll_points
from ..metrics.checks import scored_labels
from ..metrics.points import mean_over_points
from ..posterior import Posterior
from ..predictive import ClassificationPredictive, Predictive, RegressionPredictive
from ..predictive.base import as_targets, at_least_single
from ..predictive.noise import NormalNoise
from .search import minimise_on_log_scale

Score = Literal["crps", "pll", "nll"]

Case = tuple[Posterior, Any, Any]
"""A posterior with validation data that its network was not trained on: (posterior, x, y)."""

Between = tuple[float, float]

# Golden-section steps in the search for a noise. Its relative error is then about 1e-5, and that of its score far less.
REFINEMENTS = 20


# Up to this count of moments, the search runs on the CPU, because waiting for a GPU at every step takes longer.
FEW_NUMBERS = 2**15


class ScoredOutputs:
    """Outputs of posteriors for examples with known targets.

    If a score only needs mean and variance of the outputs, the outputs of all samples are not kept.

    Args:
        cases: Posteriors with inputs and targets, one for each fold.
        likelihood: The meaning of the outputs; its noise may be changed afterwards.
        score: "crps", "pll" (negative log density) or "nll"; None for the likelihood's default.
        samples: Number of samples.
        seed: Seed of the samples.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        likelihood: Likelihood,
        score: Score | None,
        samples: int,
        seed: int,
    ) -> None:
        self.likelihood, self.score_name = likelihood, score
        self.targets = [y for _, _, y in cases]
        engine = MonteCarlo(samples)
        self.moments: list[tuple[Tensor, Tensor]] | None = None  # set if they are enough
        self.outputs: list[Tensor] = []
        if score in (None, "crps") and isinstance(likelihood, Gaussian):
            self.moments = [engine.moments(posterior, x, seed) for posterior, x, _ in cases]
            if sum(mean.numel() for mean, _ in self.moments) <= FEW_NUMBERS:
                self.moments = [(mean.cpu(), variance.cpu()) for mean, variance in self.moments]
        else:
            self.outputs = [at_least_single(engine.outputs(posterior, x, seed)) for posterior, x, _ in cases]
        looks = self.outputs if self.moments is None else [torch.stack(pair) for pair in self.moments]
        for (posterior, x, _), f, (made, _) in zip(cases, looks, self._predictives(likelihood), strict=True):
            require_finite(posterior, x, f, made)

    def score(self, likelihood: Likelihood, noise: Tensor | None = None) -> Tensor:
        """Return the score under a likelihood: one number, or one per entry of several noises, (D,)."""
        made = self._predictives(likelihood)
        parts = [score_points(predictive, y, self.score_name) for predictive, y in made]
        points = torch.cat([points for points, _ in parts])
        seen = None if parts[0][1] is None else torch.cat([seen for _, seen in parts if seen is not None])
        if noise is not None and noise.dim():
            # Scaled so that the mean over outputs of the result is the mean over the targets that are present.
            share = 1.0 if seen is None else float(seen.double().mean())
            points = points.movedim(likelihood.axis, -1) if isinstance(likelihood, RealTargets) else points
            return points.flatten(0, -2).mean(0) / share
        return mean_over_points(points, seen)

    def by_row(self, likelihood: Likelihood) -> Tensor:
        """Return the score of every example, (rows,). Their mean is the score, also if some targets are missing."""
        parts = [score_points(predictive, y, self.score_name) for predictive, y in self._predictives(likelihood)]
        rows = torch.cat([points.reshape(len(points), -1).double().sum(1) for points, _ in parts])
        targets = sum(points.numel() if seen is None else int(seen.sum()) for points, seen in parts)
        return rows * (len(rows) / targets)

    def best_noise(self, between: Between | None = None, refinements: int = REFINEMENTS) -> tuple[Tensor, Tensor]:
        """Return the noise with the lowest score, and that score.

        Args:
            between: The search range; None for the likelihood's range.
            refinements: Number of golden-section steps after the grid search.
        """
        low, high = self._range() if between is None else self._given_range(between)

        def objective(level: Tensor) -> Tensor:
            return self.score(self.likelihood.with_noise(level), level)

        return minimise_on_log_scale(objective, low, high, refinements=refinements)

    def _predictives(self, likelihood: Likelihood) -> list[tuple[Any, Any]]:
        if self.moments is None:
            return [(likelihood.predictive(f), y) for f, y in zip(self.outputs, self.targets, strict=True)]
        found = [likelihood.gaussian_predictive(mean, variance) for mean, variance in self.moments]
        return list(zip(found, self.targets, strict=True))

    def _range(self) -> tuple[Tensor, Tensor]:
        outputs = self.outputs if self.moments is None else [mean[None] for mean, _ in self.moments]
        ranges = [self.likelihood.noise_range(f, y) for f, y in zip(outputs, self.targets, strict=True)]
        low = torch.stack([low for low, _ in ranges]).amin(0)
        high = torch.stack([high for _, high in ranges]).amax(0)
        return low, high

    def _given_range(self, between: Between) -> tuple[Tensor, Tensor]:
        known = (self.outputs if self.moments is None else [mean for mean, _ in self.moments])[0]
        shape = self.likelihood.noise.shape
        low, high = (known.new_full(shape, end, dtype=torch.float64) for end in between)
        return low, high


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


def require_scorable(cases: Sequence[Case], likelihood: Likelihood, score: Score | None, seed: int) -> None:
    """Raise an error if predictions cannot be scored with this score or these targets. It runs two examples per case.

    The outputs of one example are used for all others.
    """
    for posterior, x, y in cases:
        f = at_least_single(MonteCarlo(1).outputs(posterior, x[:2], seed))[:, :1]
        score_points(likelihood.predictive(f.expand(1, len(x), *f.shape[2:])), y, score)


def mean_score(
    posterior: Posterior, x: Any, y: Any, score: Score | None = None, samples: int = 64, seed: int = 0
) -> float:
    """Return the score of a posterior that `calibrate` minimises: the mean over targets that are present."""
    scored = ScoredOutputs([(posterior, x, y)], posterior.likelihood, score, samples, seed)
    return float(scored.score(posterior.likelihood))
