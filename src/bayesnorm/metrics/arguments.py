"""What the scores ask of their arguments, and the errors when they do not get it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arguments import require_positive
from ..errors import InputError
from ..predictive import ClassificationPredictive, RegressionPredictive
from ..predictive.base import as_targets


def check_regression(predictive: Any) -> None:
    """Accepts a non-empty regression predictive with finite means and non-negative, finite scales."""
    if not isinstance(predictive, RegressionPredictive):
        raise InputError(
            f"predictive: a {type(predictive).__name__} was given; a RegressionPredictive, as a posterior with a "
            "regression likelihood predicts, would work."
        )
    if predictive.loc.numel() == 0:
        raise InputError(f"predictive: outputs of shape {tuple(predictive.loc.shape)}; at least one would work.")
    scale = _unexpanded(predictive.scale)
    if not bool((torch.isfinite(scale) & (scale >= 0)).all()):
        raise InputError(
            f"predictive: the scale of its noise goes from {float(scale.min())} to {float(scale.max())}; finite "
            "numbers that are not negative would work."
        )
    if not bool(torch.isfinite(predictive.mean).all()):
        bad = int((~torch.isfinite(predictive.mean)).sum())
        raise InputError(
            f"predictive: {bad} of {predictive.mean.numel()} means are NaN or infinite; a network with finite outputs "
            "would work."
        )


def regression_targets(predictive: Any, y: Any) -> Tensor:
    """`y` in the shape, dtype and device of the predictive mean, both of them checked."""
    check_regression(predictive)
    return predictive.targets(y)


def finite_std(predictive: RegressionPredictive) -> Tensor:
    """The predictive's standard deviation, where it has one (some noise families do not)."""
    std = predictive.std
    if not bool(torch.isfinite(std).all()):
        raise InputError(
            f"predictive: the variance of {type(predictive.noise).__name__} is infinite here, so that no Gaussian has "
            'the same moments; form="mixture" of the log likelihood would work.'
        )
    return std


def classification_targets(predictive: Any, y: Any, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """Class numbers with void ones put to 0, and which ones to score: both (batch, *pixels)."""
    if not isinstance(predictive, ClassificationPredictive):
        raise InputError(
            f"predictive: a {type(predictive).__name__} was given; a ClassificationPredictive, as a posterior with "
            "the Categorical likelihood predicts, would work."
        )
    if predictive.log_probs.numel() == 0:
        raise InputError(f"predictive: outputs of shape {tuple(predictive.log_probs.shape)}; at least one would work.")
    if bool(torch.isnan(predictive.probs).any()):
        raise InputError("predictive: holds NaN probabilities; a network with finite outputs would work.")
    target = as_targets(y, predictive.probs.device)
    scored = scored_labels(predictive, target, ignore_index)
    target = predictive.targets(torch.where(scored, target, torch.zeros_like(target)))
    if not bool(scored.any()):
        void = predictive.ignore_index if ignore_index is None else ignore_index
        raise InputError(f"y: all {target.numel()} labels are ignore_index={void}; one other would work.")
    return target, scored


def scored_labels(predictive: ClassificationPredictive, target: Tensor, ignore_index: int | None) -> Tensor:
    """Which labels are void neither here nor to the likelihood."""
    scored = torch.ones_like(target, dtype=torch.bool)
    for void in (ignore_index, predictive.ignore_index):
        if void is not None:
            scored &= target != void
    return scored


def number_vector(name: str, values: Any, *, infinite: bool = True) -> Tensor:
    """A non-empty 1-D tensor of real numbers in double precision, without NaN."""
    vector = real_tensor(name, values)
    if vector.dim() != 1 or vector.numel() == 0:
        raise InputError(
            f"{name}: has shape {tuple(vector.shape)} and {vector.dtype}; a flat tensor of at least one real number "
            "(`.flatten()` makes one) would work."
        )
    vector = wide(vector)
    bad = torch.isnan(vector) if infinite else ~torch.isfinite(vector)
    if bool(bad.any()):
        kind = "NaN" if infinite else "NaN or infinite"
        raise InputError(f"{name}: holds {int(bad.sum())} {kind} values out of {vector.numel()}; drop those points.")
    return vector


def real_tensor(name: str, values: Any) -> Tensor:
    """Real numbers as a tensor; plain Python numbers keep all their digits."""
    try:
        tensor = torch.as_tensor(values if isinstance(values, Tensor) else np.array(values))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name}: {type(values).__name__} is no array of numbers ({error}); a tensor would work."
        ) from error
    if tensor.is_complex():
        raise InputError(f"{name}: is {tensor.dtype}; real numbers would work.")
    return tensor


def number_pair(doubt: Any, error: Any) -> tuple[Tensor, Tensor]:
    """Doubt and error of the same points, both flat."""
    doubts, errors = number_vector("doubt", doubt), number_vector("error", error, infinite=False)
    if doubts.shape != errors.shape:
        raise InputError(f"doubt and error: {len(doubts)} and {len(errors)} numbers; one of each per point would work.")
    return doubts, errors.to(doubts.device)


def check_floor(floor: float) -> None:
    """Refuse a least variance that is not positive."""
    words = "; a small positive variance in squared target units would work."
    require_positive("floor", floor, words=words, error=InputError)


def check_form(form: str) -> None:
    if form not in ("gaussian", "mixture"):
        raise InputError(f'form: {form!r} was given; "gaussian" or "mixture" would work.')


def wide(values: Tensor) -> Tensor:
    """Double precision, where the device has it."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def _unexpanded(values: Tensor) -> Tensor:
    """The tensor without the repeats that `expand` made."""
    for axis, stride in enumerate(values.stride()):
        if stride == 0:
            values = values.narrow(axis, 0, 1)
    return values
