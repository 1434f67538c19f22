"""Acquisition functions that judge each row by itself: a predictive in, one score per row out, higher is wanted more.

Several outputs or pixels of a row count by their mean, in the targets' own units.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..predictive import ClassificationPredictive, MultiTaskPredictive, Predictive, RegressionPredictive


def predictive_variance(predictive: Predictive) -> Tensor:
    """Return the total variance, (batch,): epistemic + aleatoric; large also where noise is, which no label mends."""
    _checked(predictive)
    return _row_means(predictive.epistemic + finite_noise(predictive))


def epistemic_variance(predictive: Predictive) -> Tensor:
    """Return the variance of the samples' means, (batch,): the part of the variance that labels could take away."""
    return _row_means(_checked(predictive).epistemic)


def entropy(predictive: Predictive) -> Tensor:
    """Return the entropy of the class probabilities, (batch,), in nats; large also where classes overlap."""
    return _row_means(require_classification(predictive).entropy)


def bald(predictive: Predictive) -> Tensor:
    """Return I(y; w), (batch,), in nats: Bayesian active learning by disagreement (Houlsby et al. 2011).

    It is what a row's label is expected to tell about the posterior's draw w, and never negative: exact over the samples
    for classes; in regression that of Gaussians with the same moments, 1/2 log(1 + epistemic / aleatoric).
    """
    if isinstance(predictive, ClassificationPredictive):
        return _row_means(require_classification(predictive).mutual_information)
    _checked(predictive)
    noise = finite_noise(predictive).clamp_min(torch.finfo(predictive.aleatoric.dtype).tiny)
    return _row_means(0.5 * torch.log1p(predictive.epistemic / noise))


def require_classification(predictive: Any) -> ClassificationPredictive:
    """Return a predictive of classes with finite means, or refuse it."""
    _checked(predictive)
    if not isinstance(predictive, ClassificationPredictive):
        raise InputError(
            f"predictive: a {type(predictive).__name__} was given; a ClassificationPredictive, as a posterior with "
            "the Categorical likelihood predicts, would work. For regression there are predictive_variance, "
            "epistemic_variance, bald and variance_reduction."
        )
    return predictive


def finite_noise(predictive: Predictive) -> Tensor:
    """Return the variance of the noise; beside an infinite one, what samples disagree about would count for nothing."""
    if isinstance(predictive, RegressionPredictive) and not bool(torch.isfinite(predictive.aleatoric).all()):
        raise InputError(
            f"predictive: {type(predictive.noise).__name__} has an infinite variance here, beside which all rows look "
            "alike; epistemic_variance would work, and so would noise with a variance (StudentT with df above 2)."
        )
    return predictive.aleatoric


def _checked(predictive: Any) -> Predictive:
    """Return a predictive of one task with rows and finite means, or refuse it."""
    if isinstance(predictive, MultiTaskPredictive):
        raise InputError(
            f"predictive: a MultiTaskPredictive was given, and its tasks have no unit in common; one of them, such as "
            f"predictive[{next(iter(predictive))!r}], would work."
        )
    if not isinstance(predictive, Predictive):
        raise InputError(f"predictive must be what posterior.predict gives, got a {type(predictive).__name__}.")
    if predictive.mean.numel() == 0:
        raise InputError(f"predictive: has shape {tuple(predictive.mean.shape)}; at least one row would work.")
    bad = int((~torch.isfinite(predictive.mean)).sum())
    if bad:
        raise InputError(
            f"predictive: {bad} of {predictive.mean.numel()} means are NaN or infinite; a network with finite outputs "
            "would work."
        )
    return predictive


def _row_means(values: Tensor) -> Tensor:
    """Return the mean over a row's outputs or pixels, (batch,)."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values
