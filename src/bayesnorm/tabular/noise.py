"""Fit the noise of a table's targets to the members' predictions of held-out rows.

`search_results.py` estimates the epistemic uncertainty. This module fits the noise: a factor on the predicted
standard deviations, a floor under them, and heavy tails. Each held-out row is treated as a new row for the whole model:
the epistemic uncertainty is a normal distribution around the members' mean, and the error is scaled down to that of a
mean over all members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..calibration import HeldOutScores, Score, significantly_better
from ..likelihoods import HeteroscedasticGaussian, HeteroscedasticStudentT, Likelihood
from ..metrics import crps_points
from ..predictive import NoiseFamily, NormalNoise, RegressionPredictive

# Number of quantiles that represent a normal distribution.
POINTS = 9

# Candidate degrees of freedom of heavy tails, and candidate floors relative to the median standard deviation.
DEGREES, FLOORS = (3.0, 5.0, 10.0), (0.0, 0.1, 0.3)

# Largest number of rows for choosing the form of the noise, and for choosing its size.
FORM_ROWS, SIZE_ROWS = 2_000, 10_000

# Number of standard errors by which the log-likelihood of another form must exceed that of plain normal noise.
EVIDENCE = 2.0

# Range of the factor on predicted standard deviations.
LEAST_FACTOR, MOST_FACTOR = 1 / 30, 30.0


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Held-out rows, treated as new rows for the model; all in standard units, (rows, targets).

    Args:
        mean: Mean prediction of the members that did not see the row.
        uncertainty: Epistemic variance of the model.
        std: Predicted standard deviation of the noise.
        target: Targets, with errors scaled to those of a mean over all members.
        weights: Weight of each row, (rows,); None for equal weights.
    """

    mean: Tensor
    uncertainty: Tensor
    std: Tensor
    target: Tensor
    weights: Tensor | None

    def predictive(self, likelihood: Likelihood) -> RegressionPredictive:
        """Return the predictive of these rows for a likelihood."""
        factor = likelihood.noise.to(self.std)
        if not isinstance(likelihood, HeteroscedasticGaussian | HeteroscedasticStudentT):
            return self._predictive(factor.sqrt().expand_as(self.std), NormalNoise())
        floor = torch.as_tensor(likelihood.floor).to(self.std)
        return self._predictive(torch.hypot(factor * self.std, floor.expand_as(self.std)), likelihood.family)

    def _predictive(self, scale: Tensor, family: NoiseFamily) -> RegressionPredictive:
        levels = (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS
        points = torch.special.ndtri(levels)
        points = (points / points.square().mean().sqrt()).to(self.mean)  # so few quantiles have too small a variance
        loc = self.mean + self.uncertainty.sqrt() * points.view(-1, *[1] * self.mean.dim())
        return RegressionPredictive(loc, scale, noise=family)

    def some(self, most: int) -> SeenRows:
        """Return at most `most` evenly spaced rows."""
        every = slice(None, None, -(-len(self.mean) // most))
        mean, uncertainty, std, target = (part[every] for part in (self.mean, self.uncertainty, self.std, self.target))
        return SeenRows(mean, uncertainty, std, target, None if self.weights is None else self.weights[every])


class SeenRowScores(HeldOutScores):
    """Scores of held-out rows of a table under any noise.

    Args:
        rows: The rows.
        likelihood: The form of the noise.
        score_name: "crps" or "pll" (negative log density).
    """

    def __init__(self, rows: SeenRows, likelihood: Likelihood, score_name: Score) -> None:
        super().__init__(likelihood, score_name, rows.weights)
        self.rows = rows

    def points(self, likelihood: Likelihood) -> tuple[Tensor, Tensor | None]:
        predictive = self.rows.predictive(likelihood)
        if self.score_name == "pll":
            return -predictive.log_prob(self.rows.target), None
        return crps_points(predictive, self.rows.target, form="mixture"), None

    def noise_range(self) -> tuple[Tensor, Tensor]:
        targets = self.rows.mean.shape[1]
        squared = not isinstance(self.likelihood, HeteroscedasticGaussian | HeteroscedasticStudentT)
        low, high = (
            torch.full((targets,), factor**2 if squared else factor, dtype=torch.float64)
            for factor in (LEAST_FACTOR, MOST_FACTOR)
        )
        return (low, high) if targets > 1 else (low[0], high[0])


def noise_for(rows: SeenRows, likelihood: Likelihood) -> Likelihood:
    """Return the likelihood whose noise fits held-out rows best.

    The CRPS chooses the size of the noise. The log-likelihood chooses its form, to which the CRPS is insensitive.

    Args:
        rows: The rows.
        likelihood: `Gaussian`, which gets one noise level for each target; or `HeteroscedasticGaussian`, which gets a
            factor, and a floor or heavy tails if they clearly improve the log-likelihood.
    """
    best = _with_best_size(rows, likelihood)
    if not isinstance(likelihood, HeteroscedasticGaussian):
        return best
    few = rows.some(FORM_ROWS)
    middle = (few.std.median(0).values * best.noise).tolist()
    plain = chosen_scores = _scores_at_best(few, likelihood)
    chosen: Likelihood = likelihood
    for form in _forms(middle):
        scores = _scores_at_best(few, form)
        if significantly_better(plain, scores, EVIDENCE) and float(scores.mean()) < float(chosen_scores.mean()):
            chosen, chosen_scores = form, scores
    return best if chosen is likelihood else _with_best_size(rows, chosen)


def _with_best_size(rows: SeenRows, likelihood: Likelihood) -> Likelihood:
    """Return a likelihood with the noise of the lowest CRPS for each target."""
    return SeenRowScores(rows.some(SIZE_ROWS), likelihood, "crps").with_best_noise(refinements=12, grid=13)


def _scores_at_best(rows: SeenRows, likelihood: Likelihood) -> Tensor:
    """Return each row's negative log density at the noise of the highest density, (rows,)."""
    scores = SeenRowScores(rows, likelihood, "pll")
    return scores.by_row(scores.with_best_noise(refinements=6, grid=13))


def _forms(middle: list[float]) -> Iterator[HeteroscedasticGaussian | HeteroscedasticStudentT]:
    """Yield all forms of the noise except plain normal noise, given the median standard deviation of each target."""
    for share in FLOORS:
        floor: Any = 0.0 if share == 0 else tuple(share * m for m in middle) if len(middle) > 1 else share * middle[0]
        if share > 0:
            yield HeteroscedasticGaussian(floor=floor)
        for df in DEGREES:
            yield HeteroscedasticStudentT(df=df, floor=floor)
