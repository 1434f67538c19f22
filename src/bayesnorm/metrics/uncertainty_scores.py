"""Scores of how well uncertainty predicts errors, and of how well it detects inputs from outside the training data.

The uncertainty can be any quantity, such as standard deviation, entropy or mutual information.

- Errors: one uncertainty and one error per point, both 1-D. The error can be any loss, such as the absolute error, or 1
  for a wrong class and 0 for a correct one. Results are averages over all orders of points with equal uncertainty, so
  they do not depend on the order of the points.
- Detection: the uncertainty of points from inside the training distribution and of points from outside it, both 1-D.
  Outside is the positive class. Ties are counted exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import scipy
import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import ClassificationPredictive
from .checks import check_classification, number_pair, number_vector, wide


@dataclass(frozen=True)
class RetentionCurve:
    """The mean error of the least uncertain points, for every fraction of points kept."""

    retained: Tensor
    """Fractions of points kept: 1/N, 2/N, ..., 1."""
    error: Tensor
    """Mean error of the points kept, in the error's units; for errors of 0 and 1, 1 - error is the accuracy."""


def retention_curve(uncertainty: Any, error: Any) -> RetentionCurve:
    """Return the mean error of the least uncertain points, for every fraction kept; a rising curve is good."""
    sums = _sums_of_most_certain(*number_pair(uncertainty, error))
    number = torch.arange(1, len(sums) + 1, dtype=sums.dtype, device=sums.device)
    return RetentionCurve(number / len(sums), sums / number)


def aurc(uncertainty: Any, error: Any) -> Tensor:
    """Return the area under the risk-coverage curve, the mean of the retention curve's errors, in the error's units.

    Lower is better. An uninformative uncertainty scores the mean error of all points.
    """
    return retention_curve(uncertainty, error).error.mean()


def prediction_rejection_ratio(uncertainty: Any, error: Any) -> Tensor:
    """Return the prediction rejection ratio (Malinin and Gales), if the most uncertain points are rejected first.

    It is (area_random - area_uncertainty) / (area_random - area_oracle), with areas under the curve of remaining error
    against the share rejected. 1 is a perfect order (largest errors first), 0 a random one; higher is better.
    """
    uncertainties, errors = number_pair(uncertainty, error)
    random = errors.sum() / 2
    gained = random - _area(_sums_of_most_certain(uncertainties, errors))
    possible = random - _area(_sums_of_most_certain(errors, errors))
    if not bool(errors.max() > errors.min()):
        raise InputError(
            f"error must have at least two different values, got {len(errors)} errors that are all {float(errors[0])}."
        )
    return gained / possible


def spearman(uncertainty: Any, error: Any) -> Tensor:
    """Return Spearman's rank correlation of uncertainty and error, between -1 and 1; higher is better.

    Ties get their average rank.
    """
    uncertainties, errors = number_pair(uncertainty, error)
    for name, values in (("uncertainty", uncertainties), ("error", errors)):
        if not bool((values != values[0]).any()):
            raise InputError(f"{name} must have at least two different values, got {len(values)} equal ones.")
    correlation = scipy.stats.spearmanr(uncertainties.detach().cpu().numpy(), errors.detach().cpu().numpy()).statistic
    return torch.tensor(correlation, dtype=uncertainties.dtype, device=uncertainties.device)


def _sums_of_most_certain(uncertainty: Tensor, error: Tensor) -> Tensor:
    """Return the summed error of the k least uncertain points, k = 1 ... N, averaged over the orders of ties."""
    ordered, order = uncertainty.sort()
    running = torch.cat([error.new_zeros(1), error[order].cumsum(0)])
    first, end = torch.searchsorted(ordered, ordered), torch.searchsorted(ordered, ordered, right=True)
    number = torch.arange(1, len(ordered) + 1, device=ordered.device)
    return running[first] + (number - first) * (running[end] - running[first]) / (end - first)


def _area(sums: Tensor) -> Tensor:
    """Return the area under the summed error against the fraction kept, by the trapezoidal rule from (0, 0)."""
    return (sums.sum() - sums[-1] / 2) / len(sums)


def auroc(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the area under the ROC curve, P(out > in) + P(out = in) / 2 for the uncertainty of two random points.

    It is between 0 and 1; higher is better, and 1/2 is chance.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    below = torch.searchsorted(inside, outside)
    not_above = torch.searchsorted(inside, outside, right=True)
    return (below + not_above).to(inside.dtype).sum() / (2 * len(inside) * len(outside))


def aupr(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the area under the precision-recall curve as average precision, with outside as the positive class.

    It is the mean, over outside points, of the precision with that point's uncertainty as threshold. It is at most 1;
    higher is better. Chance is the share of outside points.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    caught = len(outside) - torch.searchsorted(outside, outside)
    false_alarms = len(inside) - torch.searchsorted(inside, outside)
    return (caught / (caught + false_alarms).to(inside.dtype)).mean()


def fpr95(uncertainty_in: Any, uncertainty_out: Any) -> Tensor:
    """Return the false positive rate at 95 % recall, between 0 and 1; lower is better.

    The threshold is the largest uncertainty that at least 95 % of the outside points reach. The result is the share of
    inside points that reach it too.
    """
    inside, outside = _sorted_pair(uncertainty_in, uncertainty_out)
    caught = -(-95 * len(outside) // 100)
    threshold = outside[len(outside) - caught]
    return (inside >= threshold).to(inside.dtype).mean()


@dataclass(frozen=True)
class EntropyCDF:
    """The empirical cumulative distribution function of the predictive entropy."""

    entropy: Tensor
    """Entropies in nats."""
    share: Tensor
    """Share of points with at most this entropy."""


def entropy_cdf(predictive: ClassificationPredictive, at: Sequence[float] | Tensor | None = None) -> EntropyCDF:
    """Return the share of points whose predictive entropy is at most `at`, for every entropy in `at`.

    For data from the training distribution the curve should rise early, for other data late.

    Args:
        predictive: Predictions, per example or per pixel.
        at: Entropies in nats; None for 101 equal steps from 0 to the largest possible entropy, ln(classes).
    """
    check_classification(predictive)
    most = math.log(predictive.probs.shape[1])
    entropy = number_vector("predictive.entropy", predictive.entropy.flatten()).clamp(0, most).sort().values
    entropies = torch.linspace(0, most, 101, dtype=torch.float64) if at is None else number_vector("at", at)
    entropies = wide(entropies.to(entropy.device))
    return EntropyCDF(entropies, torch.searchsorted(entropy, entropies, right=True).to(entropy.dtype) / len(entropy))


def _sorted_pair(uncertainty_in: Any, uncertainty_out: Any) -> tuple[Tensor, Tensor]:
    """Check and sort the uncertainty of inside and of outside points."""
    inside, outside = number_vector("uncertainty_in", uncertainty_in), number_vector("uncertainty_out", uncertainty_out)
    return inside.sort().values, outside.to(inside.device).sort().values
