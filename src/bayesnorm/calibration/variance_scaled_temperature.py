"""Fit a temperature that increases with the samples' disagreement, if validation data show that it helps.

Temperature and slope minimise the score plus slope^2 / (2 PRIOR^2 examples). So the slope has the prior N(0, PRIOR^2),
and a small data set cannot produce a large slope by chance.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..likelihoods import Categorical, VarianceScaledCategorical, log_logit_variance, standardised_disagreement
from ..metrics import mean_over_points
from ..predictive import ClassificationPredictive
from .held_out_scores import score_points, significantly_better
from .sampled_outputs import SampledOutputs

# Prior standard deviation of the slope. Fitted slopes of CIFAR-10 networks are about as large.
PRIOR = 0.1

# Maximum steps of the search for temperature and slope; it needs fewer.
ITERATIONS = 60


def fit_variance_scaled_temperature(scored: SampledOutputs, likelihood: Categorical, evidence: float) -> Categorical:
    """Return a likelihood with an input-dependent temperature, or the given one unless that is significantly better.

    Args:
        scored: Outputs of the posterior at its final effective batch size.
        likelihood: The likelihood with the best constant temperature.
        evidence: By how many standard errors of the difference per example it must be better.
    """
    scaled = _fitted(scored, likelihood)
    if scaled is None:
        return likelihood
    return scaled if significantly_better(scored.by_row(likelihood), scored.by_row(scaled), evidence) else likelihood


@torch.inference_mode(False)
@torch.enable_grad()
def _fitted(scored: SampledOutputs, likelihood: Categorical) -> VarianceScaledCategorical | None:
    """Return temperature and slope with the lowest score; None if samples do not differ or the slope is negative."""
    outputs = [f if f.dim() > 2 else f.unsqueeze(-1) for f in scored.outputs]  # binary classifiers may lack an axis
    log_variances = [log_logit_variance(f, f.new_full((len(f),), 1 / len(f))) for f in outputs]
    joined = torch.cat([values.flatten() for values in log_variances]).double()
    if len(joined) < 2 or not bool(torch.isfinite(joined).all()) or not float(joined.std()) > 0:
        return None
    mean, std = float(joined.mean()), float(joined.std())
    disagreement = [
        standardised_disagreement(values, mean, std)[:, None] for values in log_variances
    ]  # with an axis for classes
    parameters = torch.tensor([math.log(likelihood.temperature), 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([parameters], max_iter=ITERATIONS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        parts = []
        for f, z, y in zip(outputs, disagreement, scored.targets, strict=True):
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
