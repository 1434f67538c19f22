"""The noise of a table's targets, from what members say of rows that they did not see.

The uncertainty about the network is given (`uncertainty_parts.py`); here the rest is found: a factor on the predicted deviations, a
floor under them, and whether the noise has heavy tails. Each held-out row is taken as the model would see a new one: a
normal distribution of its uncertainty about the members' mean, and an error as much smaller than theirs as a mean over all
members' is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..likelihoods import HeteroscedasticGaussian, HeteroscedasticStudentT, Likelihood
from ..metrics import crps_points
from ..predictive import RegressionPredictive
from ..predictive.noise import NoiseFamily, NormalNoise
from ..selection.search import minimise_on_log_scale

# Points that stand for a normal distribution: its quantiles.
POINTS = 9

# Degrees of freedom of heavy tails to choose from, and floors in terms of the middle deviation.
DEGREES, FLOORS = (3.0, 5.0, 10.0), (0.0, 0.1, 0.3)

# Rows that the form of the noise is chosen by, and that its size is, at most.
FORM_ROWS, SIZE_ROWS = 2_000, 10_000

# By how many standard errors of the log likelihood another form than the plain normal one has to be better.
EVIDENCE = 2.0

# Range of the factor on predicted deviations.
LEAST_FACTOR, MOST_FACTOR = 1 / 30, 30.0


@dataclass(frozen=True, eq=False)
class SeenRows:
    """Held-out rows as the model would see new ones, in standard units, (rows, targets) each.

    Args:
        mean: What the members that were asked say, on average.
        uncertainty: Variance of the model's uncertainty about it.
        std: Predicted deviation of the noise.
        target: Targets, their errors scaled to what a mean over all members would leave.
        weights: How much each row counts, (rows,); None for all the same.
    """

    mean: Tensor
    uncertainty: Tensor
    std: Tensor
    target: Tensor
    weights: Tensor | None

    def predictive(self, likelihood: Likelihood) -> RegressionPredictive:
        """Return what the model would say of these rows with some likelihood."""
        factor = likelihood.noise.to(self.std)
        if not isinstance(likelihood, HeteroscedasticGaussian | HeteroscedasticStudentT):
            return self._predictive(factor.sqrt().expand_as(self.std), NormalNoise())
        floor = torch.as_tensor(likelihood.floor).to(self.std)
        return self._predictive(torch.hypot(factor * self.std, floor.expand_as(self.std)), likelihood.family)

    def _predictive(self, scale: Tensor, family: NoiseFamily) -> RegressionPredictive:
        levels = (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS
        points = torch.special.ndtri(levels)
        points = (points / points.square().mean().sqrt()).to(self.mean)  # as few of them have too small a variance
        loc = self.mean + self.uncertainty.sqrt() * points.view(-1, *[1] * self.mean.dim())
        return RegressionPredictive(loc, scale, noise=family)

    def some(self, most: int) -> SeenRows:
        """Return evenly spaced rows, at most so many."""
        every = slice(None, None, -(-len(self.mean) // most))
        mean, uncertainty, std, target = (part[every] for part in (self.mean, self.uncertainty, self.std, self.target))
        return SeenRows(mean, uncertainty, std, target, None if self.weights is None else self.weights[every])

    def mean_of(self, values: Tensor) -> Tensor:
        """Return the mean of values (rows, targets) over rows, by their weights."""
        if self.weights is None:
            return values.mean(0)
        return (values * self.weights[:, None]).sum(0) / self.weights.sum()

    def with_size(self, likelihood: Likelihood, *, by_density: bool = False) -> Likelihood:
        """Return a likelihood with the noise of the lowest CRPS for each target, or of the highest log likelihood."""
        targets = self.mean.shape[1]
        squared = not isinstance(likelihood, HeteroscedasticGaussian | HeteroscedasticStudentT)
        low, high = (torch.full((targets,), bound, dtype=torch.float64) for bound in (LEAST_FACTOR, MOST_FACTOR))

        def sized(factor: Tensor) -> Likelihood:
            noise = factor.square() if squared else factor
            return likelihood.with_noise(noise if targets > 1 else noise[0])

        def score(factor: Tensor) -> Tensor:
            predictive = self.predictive(sized(factor))
            if by_density:
                return -self.mean_of(predictive.log_prob(self.target))
            return self.mean_of(crps_points(predictive, self.target, form="mixture"))

        return sized(minimise_on_log_scale(score, low, high, grid=13, refinements=6 if by_density else 12)[0])

    def log_likelihood(self, form: Likelihood) -> Tensor:
        """Return each row's log likelihood, summed over targets, at the best noise of some form: (rows,)."""
        found = self.predictive(self.with_size(form, by_density=True)).log_prob(self.target).sum(1)
        return found if self.weights is None else found * self.weights


def noise_for(rows: SeenRows, likelihood: Likelihood) -> Likelihood:
    """Return the likelihood whose noise fits held-out rows best.

    Its size has the lowest CRPS. Its form, which CRPS hardly sees, goes by the log likelihood.

    Args:
        rows: The rows.
        likelihood: `Gaussian`, which gets one noise for each target; or `HeteroscedasticGaussian`, which gets a factor,
            and where the rows' log likelihood is clearly better with them, a floor or heavy tails.
    """
    best = rows.some(SIZE_ROWS).with_size(likelihood)
    if not isinstance(likelihood, HeteroscedasticGaussian):
        return best
    few = rows.some(FORM_ROWS)
    middle = (few.std.median(0).values * best.noise).tolist()
    plain, most = few.log_likelihood(likelihood), 0.0
    chosen: Likelihood = likelihood
    for form in _forms(middle):
        gain = few.log_likelihood(form) - plain
        mean, error = float(gain.mean()), float(gain.std()) / len(gain) ** 0.5
        if mean > EVIDENCE * error and mean > most:
            most, chosen = mean, form
    return best if chosen is likelihood else rows.some(SIZE_ROWS).with_size(chosen)


def _forms(middle: list[float]) -> Iterator[HeteroscedasticGaussian | HeteroscedasticStudentT]:
    """Yield forms of the noise other than the plain normal one, given a middle deviation of each target."""
    for share in FLOORS:
        floor: Any = 0.0 if share == 0 else tuple(share * m for m in middle) if len(middle) > 1 else share * middle[0]
        if share > 0:
            yield HeteroscedasticGaussian(floor=floor)
        for df in DEGREES:
            yield HeteroscedasticStudentT(df=df, floor=floor)
