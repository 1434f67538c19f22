"""Scores of how well uncertainty tells where the errors are. All take one uncertainty and one error per point, both flat.

Uncertainty is any number that grows with uncertainty (std, entropy, mutual information); error any loss, such as the
absolute error, or 1 for a wrong class and 0 for a right one. Points of equal uncertainty count as their average over all
orders, so that no result depends on the order of rows.
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
    """Error against the share of points kept, after the most uncertain ones are dropped."""

    kept: Tensor
    """Shares 1/N, 2/N, ..., 1."""
    error: Tensor
    """Mean error of the points kept, in the error's units (1 - error is precision where errors are 0 and 1)."""


def retention_curve(uncertainty: Any, error: Any) -> RetentionCurve:
    """Return the mean error of the share of points that are least in uncertainty, for every share; rising is good."""
    sums = _sums_of_most_certain(*number_pair(uncertainty, error))
    number = torch.arange(1, len(sums) + 1, dtype=sums.dtype, device=sums.device)
    return RetentionCurve(number / len(sums), sums / number)


def aurc(uncertainty: Any, error: Any) -> Tensor:
    """Return the area under the risk-coverage curve, the mean of the retention curve's errors, in the error's units.

    Lower is better; the mean error itself is what uncertainty without information gets.
    """
    return retention_curve(uncertainty, error).error.mean()


def prediction_rejection_ratio(uncertainty: Any, error: Any) -> Tensor:
    """Return how much of the error is gone if an expert answers the most uncertain points first (Malinin and Gales).

    It is (area_random - area_uncertainty) / (area_random - area_oracle), of areas under the error left against the share
    rejected. 1 is the order of the errors themselves, 0 a random one, -1 the worst at the least. Higher is better.
    """
    doubts, errors = number_pair(uncertainty, error)
    random = errors.sum() / 2
    gained = random - _area(_sums_of_most_certain(doubts, errors))
    possible = random - _area(_sums_of_most_certain(errors, errors))
    if not bool(errors.max() > errors.min()):
        raise InputError(
            f"error: all {len(errors)} errors are {float(errors[0])}, so that no order is better than another; at "
            "least two different errors would work."
        )
    return gained / possible


def spearman(uncertainty: Any, error: Any) -> Tensor:
    """Return Spearman's rank correlation of uncertainty and error, ties at their average rank: -1 to 1, higher is better."""
    doubts, errors = number_pair(uncertainty, error)
    for name, values in (("uncertainty", doubts), ("error", errors)):
        if not bool((values != values[0]).any()):
            raise InputError(f"{name}: all {len(values)} numbers are equal; two different ones or more would work.")
    found = scipy.stats.spearmanr(doubts.detach().cpu().numpy(), errors.detach().cpu().numpy()).statistic
    return torch.tensor(found, dtype=doubts.dtype, device=doubts.device)


def _sums_of_most_certain(uncertainty: Tensor, error: Tensor) -> Tensor:
    """Return the summed error of the k least uncertain points, k = 1 ... N, averaged over the orders of equal uncertainty."""
    ordered, order = uncertainty.sort()
    running = torch.cat([error.new_zeros(1), error[order].cumsum(0)])
    first, end = torch.searchsorted(ordered, ordered), torch.searchsorted(ordered, ordered, right=True)
    number = torch.arange(1, len(ordered) + 1, device=ordered.device)
    return running[first] + (number - first) * (running[end] - running[first]) / (end - first)


def _area(sums: Tensor) -> Tensor:
    """Return the area under the summed error against the share kept, by trapezes from (0, 0)."""
    return (sums.sum() - sums[-1] / 2) / len(sums)
