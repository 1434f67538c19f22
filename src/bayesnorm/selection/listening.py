"""Let a classifier's temperature rise with the samples' disagreement, where validation rows prove that it should.

Temperature and slope are those with the least score plus slope^2 / (2 PRIOR^2 rows): the slope is N(0, PRIOR^2)
beforehand, so that few rows cannot make it a large one by chance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..likelihoods import Categorical, VarianceScaledCategorical
from ..likelihoods.variance_scaled_categorical import log_variance, standardised
from ..metrics.points import mean_over_points
from ..predictive import ClassificationPredictive
from .scored_outputs import ScoredOutputs, score_points

# Standard deviation of the slope before any row is seen. Fitted slopes of CIFAR-10 networks are about as large.
PRIOR = 0.1

# Steps of the search for temperature and slope, more than it takes.
ITERATIONS = 60


def listening(scored: ScoredOutputs, likelihood: Categorical, evidence: float) -> Categorical:
    """Return a likelihood whose temperature listens to uncertainty, or the given one if that is not better beyond chance.

    Args:
        scored: Outputs of the posterior at the effective batch size that it is to have.
        likelihood: With the best temperature for all rows.
        evidence: How many standard errors of the rows' differences it has to be better by.
    """
    found = _fitted(scored, likelihood)
    if found is None:
        return likelihood
    return found if better_beyond_chance(scored.by_row(likelihood), scored.by_row(found), evidence) else likelihood


def better_beyond_chance(simple: Tensor, other: Tensor, evidence: float) -> bool:
    """Tell whether the rows' mean score falls by more than so many standard errors of their differences."""
    gain = simple - other
    return len(gain) > 1 and float(gain.mean()) > evidence * float(gain.std()) / math.sqrt(len(gain))


@torch.inference_mode(False)
@torch.enable_grad()
def _fitted(scored: ScoredOutputs, likelihood: Categorical) -> VarianceScaledCategorical | None:
    """Find temperature and slope with the least score; None where there is no uncertainty, or where it should not rise."""
    outputs = [f if f.dim() > 2 else f.unsqueeze(-1) for f in scored.outputs]  # a binary classifier's may lack an axis
    doubts = [log_variance(f, f.new_full((len(f),), 1 / len(f))) for f in outputs]
    each = torch.cat([uncertainty.flatten() for uncertainty in doubts]).double()
    if len(each) < 2 or not bool(torch.isfinite(each).all()) or not float(each.std()) > 0:
        return None
    mean, std = float(each.mean()), float(each.std())
    known = [standardised(uncertainty, mean, std)[:, None] for uncertainty in doubts]  # an axis for classes
    parameters = torch.tensor([math.log(likelihood.temperature), 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([parameters], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        parts = []
        for f, z, y in zip(outputs, known, scored.targets, strict=True):
            level, slope = parameters.to(f)
            log_probs = likelihood.log_probs(f, (level + slope * z).exp())
            parts.append(score_points(ClassificationPredictive(log_probs, None, likelihood.ignore_index), y, None))
        seen = None if parts[0][1] is None else torch.cat([part for _, part in parts if part is not None])
        value = mean_over_points(torch.cat([points for points, _ in parts]), seen).double()
        value = value + parameters[1].square() / (2 * PRIOR**2 * sum(len(points) for points, _ in parts))
        value.backward()
        return value

    optimiser.step(loss)
    level, slope = parameters.tolist()
    low, high = (float(end) for end in likelihood.noise_range(outputs[0], scored.targets[0]))
    if not (slope > 0 and low <= math.exp(level) <= high):
        return None
    return VarianceScaledCategorical(
        math.exp(level), slope=min(slope, 10.0), mean=mean, std=std, ignore_index=likelihood.ignore_index
    )
