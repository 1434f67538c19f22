"""What posteriors say of validation rows, drawn once and then scored under any noise."""

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
from ..network import Executable
from ..posterior import Posterior
from ..predictive import ClassificationPredictive, Predictive, RegressionPredictive
from ..predictive.base import as_targets, at_least_single
from ..predictive.noise import NormalNoise
from .search import minimise_on_log_scale

Score = Literal["crps", "pll", "nll"]

Case = tuple[Posterior, Any, Any]
"""A posterior with validation rows that its network was not trained on: (posterior, x, y)."""

Between = tuple[float, float]

# Golden-section steps in the search for a noise: it is then known to some 1e-5 of itself, its score far better.
REFINEMENTS = 20


# Moments up to which a search is made on the CPU: at every look, it would wait for a GPU longer than that computes.
FEW_NUMBERS = 2**15


class ScoredOutputs:
    """Outputs of posteriors for rows with known targets.

    Where a score needs no more than the outputs' mean and variance, the outputs of all samples are not held.

    Args:
        cases: Posteriors with rows and their targets, one for each fold.
        likelihood: What outputs mean; its noise may be changed afterwards.
        score: What to take: "crps", "pll" (negative log density) or "nll"; None takes the likelihood's default.
        samples: How many samples.
        seed: Same seed, same samples.
        groups: For posteriors over stacked networks, the group of each, (E,): every group has a noise and a score of
            its own, in which its networks count the same. None: one score for all rows.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        likelihood: Likelihood,
        score: Score | None,
        samples: int,
        seed: int,
        groups: Tensor | None = None,
    ) -> None:
        self.likelihood, self.score_name, self.groups = likelihood, score, groups
        self.targets = [y for _, _, y in cases]
        self._group_means: Tensor | None = None
        engine = MonteCarlo(samples)
        self.moments: list[tuple[Tensor, Tensor]] | None = None  # where these are enough
        self.outputs: list[Tensor] = []
        if score in (None, "crps") and isinstance(likelihood, Gaussian):
            self.moments = [engine.moments(posterior, x, seed) for posterior, x, _ in cases]
            if sum(mean.numel() for mean, _ in self.moments) <= FEW_NUMBERS:
                self.moments = [(mean.cpu(), variance.cpu()) for mean, variance in self.moments]
        else:
            self.outputs = [at_least_single(engine.outputs(posterior, x, seed)) for posterior, x, _ in cases]
        if groups is None:  # one of many networks may have outputs that are not finite
            looks = self.outputs if self.moments is None else [torch.stack(pair) for pair in self.moments]
            for (posterior, x, _), f, (made, _) in zip(cases, looks, self._predictives(likelihood), strict=True):
                require_finite(posterior, x, f, made)
        else:
            shape = tuple(self.outputs[0].shape[1:] if self.moments is None else self.moments[0][0].shape)
            if len(shape) < 3 or shape[0] != len(groups):
                raise BayesNormError(
                    f"groups: {len(groups)} were given for outputs of shape {shape}; one for each network of a stack, "
                    "whose outputs are (networks, rows, targets), would work."
                )

    def score(self, likelihood: Likelihood, noise: Tensor | None = None) -> Tensor:
        """Score under a likelihood: one number, one for each group, or one for each entry of several noises, (D,)."""
        made = self._predictives(likelihood)
        parts = [score_points(predictive, y, self.score_name) for predictive, y in made]
        if self.groups is not None:
            each = torch.stack([mean_over_points(points, seen, each=1).double() for points, seen in parts]).mean(0)
            return self._averaging(each) @ each
        points = torch.cat([points for points, _ in parts])
        seen = None if parts[0][1] is None else torch.cat([seen for _, seen in parts if seen is not None])
        if noise is not None and noise.dim():
            # The mean over outputs of what is returned is then the mean over the targets that are there.
            share = 1.0 if seen is None else float(seen.double().mean())
            points = points.movedim(likelihood.axis, -1) if isinstance(likelihood, RealTargets) else points
            return points.flatten(0, -2).mean(0) / share
        return mean_over_points(points, seen)

    def by_row(self, likelihood: Likelihood) -> Tensor:
        """Score every row of every case, (rows,); their mean is the score, also where some have fewer targets."""
        parts = [score_points(predictive, y, self.score_name) for predictive, y in self._predictives(likelihood)]
        rows = torch.cat([points.reshape(len(points), -1).double().sum(1) for points, _ in parts])
        targets = sum(points.numel() if seen is None else int(seen.sum()) for points, seen in parts)
        return rows * (len(rows) / targets)

    def best_noise(self, between: Between | None = None, refinements: int = REFINEMENTS) -> tuple[Tensor, Tensor]:
        """Return the noise with the least score, and that score; both for each group where there are some.

        Args:
            between: Where to look; None asks the likelihood.
            refinements: Golden-section steps after a first look at a grid.
        """
        low, high = self._range() if between is None else self._given_range(between)

        def objective(level: Tensor) -> Tensor:
            return self.score(self.with_noise(level), level)

        level, value = minimise_on_log_scale(objective, low, high, refinements=refinements)
        return level, value

    def with_noise(self, level: Tensor) -> Likelihood:
        """Return the likelihood with this noise, one number or one for each group."""
        return self.likelihood.with_noise(level if self.groups is None else level[self.groups.to(level.device)])

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
        if self.groups is None:
            return low, high
        groups, count = self.groups.to(low.device), int(self.groups.max()) + 1
        least = low.new_full((count,), torch.inf).scatter_reduce(0, groups, low, "amin")
        return least, high.new_zeros(count).scatter_reduce(0, groups, high, "amax")

    def _given_range(self, between: Between) -> tuple[Tensor, Tensor]:
        known = (self.outputs if self.moments is None else [mean for mean, _ in self.moments])[0]
        shape = self.likelihood.noise.shape if self.groups is None else (int(self.groups.max()) + 1,)
        low, high = (known.new_full(shape, end, dtype=torch.float64) for end in between)
        return low, high

    def _averaging(self, like: Tensor) -> Tensor:
        """A matrix whose product with one number for each network is the mean of each group, (groups, E)."""
        if self._group_means is None:
            assert self.groups is not None
            members = torch.nn.functional.one_hot(self.groups).T.to(like)
            self._group_means = members / members.sum(1, keepdim=True)
        return self._group_means


def score_points(predictive: Predictive, y: Any, score: Score | None) -> tuple[Tensor, Tensor | None]:
    """Return the score of every target, lower is better, 0 for missing ones; and which are there (None: all)."""
    regression = isinstance(predictive, RegressionPredictive)
    score = score or ("crps" if regression else "nll")
    if score not in (("crps", "pll") if regression else ("nll",)):
        works = '"crps" or "pll"' if regression else '"nll"'
        raise BayesNormError(f"score: {score!r} was given for {type(predictive).__name__}; {works} would work.")
    if isinstance(predictive, RegressionPredictive):
        _, seen = predictive.observed(y)
        if score == "pll":
            return -pll_points(predictive, y), seen
        # The paper's matched Gaussian would pass over the shape of noise that is not normal.
        normal = isinstance(predictive.noise, NormalNoise)
        return predictive.crps(y) if normal else crps_points(predictive, y, form="mixture"), seen
    points = -predictive.log_prob(y)
    if isinstance(predictive, ClassificationPredictive) and predictive.ignore_index is not None:
        return points, scored_labels(predictive, as_targets(y, points.device), None)
    return points, None


def require_scorable(cases: Sequence[Case], likelihood: Likelihood, score: Score | None, seed: int) -> None:
    """Refuse a score, or targets, that predictions cannot be scored by; two rows of each case are run.

    One row's outputs stand for those of all others. Stacks of networks are not looked at.
    """
    for posterior, x, y in cases:
        if isinstance(posterior.executable, Executable):
            f = at_least_single(MonteCarlo(1).outputs(posterior, x[:2], seed))[:, :1]
            score_points(likelihood.predictive(f.expand(1, len(x), *f.shape[2:])), y, score)


def mean_score(
    posterior: Posterior, x: Any, y: Any, score: Score | None = None, samples: int = 64, seed: int = 0
) -> float:
    """Score a posterior as it stands by what `calibrate` minimises: the mean over targets that are there."""
    scored = ScoredOutputs([(posterior, x, y)], posterior.likelihood, score, samples, seed)
    return float(scored.score(posterior.likelihood))
