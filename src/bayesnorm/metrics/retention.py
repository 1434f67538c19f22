"""Scores of how well uncertainty predicts errors. All take one uncertainty and one error per point, both 1-D.

The uncertainty can be any quantity, such as standard deviation, entropy or mutual information. The error can be any
loss, such as the absolute error, or 1 for a wrong class and 0 for a correct one. Results are averages over all orders
of points with equal uncertainty, so they do not depend on the order of the points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy
import torch
from torch import Tensor

from ..errors import InputError
from .checks import number_pair


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
    doubts, errors = number_pair(uncertainty, error)
    random = errors.sum() / 2
    gained = random - _area(_sums_of_most_certain(doubts, errors))
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
    doubts, errors = number_pair(uncertainty, error)
    for name, values in (("uncertainty", doubts), ("error", errors)):
        if not bool((values != values[0]).any()):
            raise InputError(f"{name} must have at least two different values, got {len(values)} equal ones.")
    correlation = scipy.stats.spearmanr(doubts.detach().cpu().numpy(), errors.detach().cpu().numpy()).statistic
    return torch.tensor(correlation, dtype=doubts.dtype, device=doubts.device)


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
