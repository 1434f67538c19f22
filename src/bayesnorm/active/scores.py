"""Acquisition functions that return one score per example; higher means more worth labelling.

The score of several outputs or pixels is their mean, in the targets' units.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import ClassificationPredictive, MultiTaskPredictive, Predictive, RegressionPredictive


def predictive_variance(predictive: Predictive) -> Tensor:
    """Return the total variance, epistemic + aleatoric, (batch,).

    It is also large where the noise is large, which more labels cannot reduce.
    """
    _checked(predictive)
    return _row_means(predictive.epistemic + finite_noise(predictive))


def epistemic_variance(predictive: Predictive) -> Tensor:
    """Return the epistemic variance, (batch,): the part of the total variance that more labels can reduce."""
    return _row_means(_checked(predictive).epistemic)


def entropy(predictive: Predictive) -> Tensor:
    """Return the predictive entropy, (batch,), in nats. It is also large where classes overlap."""
    return _row_means(require_classification(predictive).entropy)


def bald(predictive: Predictive) -> Tensor:
    """Return the mutual information I(y; w), (batch,), in nats: Bayesian active learning by disagreement.

    It is the expected information of a label y about the posterior's sample w (Houlsby et al. 2011), and never
    negative. For classes it is exact over the samples. For regression it is that of Gaussians with the same moments,
    1/2 log(1 + epistemic variance / aleatoric variance).
    """
    if isinstance(predictive, ClassificationPredictive):
        return _row_means(require_classification(predictive).mutual_information)
    _checked(predictive)
    noise = finite_noise(predictive).clamp_min(torch.finfo(predictive.aleatoric.dtype).tiny)
    return _row_means(0.5 * torch.log1p(predictive.epistemic / noise))


def require_classification(predictive: Any) -> ClassificationPredictive:
    """Return a classification predictive with finite means, or raise an error."""
    _checked(predictive)
    if not isinstance(predictive, ClassificationPredictive):
        raise InputError(
            f"predictive must be a ClassificationPredictive, got a {type(predictive).__name__}. For regression, use "
            "predictive_variance, epistemic_variance, bald or variance_reduction."
        )
    return predictive


def finite_noise(predictive: Predictive) -> Tensor:
    """Return the aleatoric variance, or raise an error if it is infinite, as no score would then mean anything."""
    if isinstance(predictive, RegressionPredictive) and not bool(torch.isfinite(predictive.aleatoric).all()):
        raise InputError(
            f"predictive: {type(predictive.noise).__name__} has an infinite variance here, so examples cannot be "
            "ranked by it. Use epistemic_variance, or noise with a finite variance (StudentT with df above 2)."
        )
    return predictive.aleatoric


def _checked(predictive: Any) -> Predictive:
    """Return a non-empty predictive of one task with finite means, or raise an error."""
    if isinstance(predictive, MultiTaskPredictive):
        raise InputError(
            "predictive is a MultiTaskPredictive, whose tasks have no common unit. Pass one of its tasks, such as "
            f"predictive[{next(iter(predictive))!r}]."
        )
    if not isinstance(predictive, Predictive):
        raise InputError(f"predictive must be the result of posterior.predict, got a {type(predictive).__name__}.")
    if predictive.mean.numel() == 0:
        raise InputError(f"predictive must have at least one example, got shape {tuple(predictive.mean.shape)}.")
    bad = int((~torch.isfinite(predictive.mean)).sum())
    if bad:
        raise InputError(
            f"predictive has {bad} NaN or infinite means out of {predictive.mean.numel()}. Check the inputs and the "
            "weights of the network."
        )
    return predictive


def _row_means(values: Tensor) -> Tensor:
    """Return the mean over the outputs or pixels of every example, (batch,)."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values
