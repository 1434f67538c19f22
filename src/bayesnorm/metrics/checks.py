"""Checks of what scores are given, with errors that say what would work."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..arguments import require_positive
from ..errors import InputError
from ..predictive import ClassificationPredictive, RegressionPredictive, RegressionSummary
from ..predictive.base import as_targets, number_tensor


def check_regression(predictive: Any) -> None:
    """Refuse all but a non-empty regression predictive with finite means and non-negative, finite scales."""
    if not isinstance(predictive, RegressionPredictive):
        raise InputError(
            "predictive must be a RegressionPredictive, as a posterior with a regression likelihood predicts, "
            f"got a {type(predictive).__name__}."
        )
    if predictive.mean.numel() == 0:
        raise InputError(f"predictive: outputs of shape {tuple(predictive.mean.shape)}; at least one would work.")
    scale = None if isinstance(predictive, RegressionSummary) else _unexpanded(predictive.scale)
    if scale is not None and not bool((torch.isfinite(scale) & (scale >= 0)).all()):
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
    """Check the predictive, and return `y` in the shape, dtype and device of its mean."""
    check_regression(predictive)
    return predictive.targets(y)


def observed_targets(predictive: Any, y: Any) -> tuple[Tensor, Tensor | None]:
    """Return `regression_targets` with the mean in place of missing ones, and a mask of the others (None: all)."""
    check_regression(predictive)
    return predictive.observed(y)


def finite_std(predictive: RegressionPredictive) -> Tensor:
    """Return the predictive's standard deviation; refuse families of noise that have none."""
    std = predictive.std
    if not bool(torch.isfinite(std).all()):
        raise InputError(
            f"predictive: the variance of {type(predictive.noise).__name__} is infinite here, so that no Gaussian has "
            'the same moments; form="mixture" of the log likelihood would work.'
        )
    return std


def check_classification(predictive: Any) -> None:
    """Refuse all but a predictive of classes."""
    if not isinstance(predictive, ClassificationPredictive):
        raise InputError(
            "predictive must be a ClassificationPredictive, as a posterior with the Categorical likelihood "
            f"predicts, got a {type(predictive).__name__}."
        )


def classification_targets(predictive: Any, y: Any, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """Return class numbers, void ones replaced by 0, and a mask of those to score; both (batch, *pixels)."""
    check_classification(predictive)
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
    """Return a mask of the labels that neither `ignore_index` nor the likelihood's own leaves out."""
    scored = torch.ones_like(target, dtype=torch.bool)
    for void in (ignore_index, predictive.ignore_index):
        if void is not None:
            scored &= target != void
    return scored


def number_vector(name: str, values: Any, *, infinite: bool = True) -> Tensor:
    """Return a non-empty 1-D tensor of real numbers in double precision, or raise an error; NaN is refused."""
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
    """Return real numbers as a tensor; plain Python numbers keep all their digits."""
    tensor = number_tensor(name, values)
    if tensor.is_complex():
        raise InputError(f"{name}: is {tensor.dtype}; real numbers would work.")
    return tensor


def number_pair(
    uncertainty: Any, error: Any, names: tuple[str, str] = ("uncertainty", "error")
) -> tuple[Tensor, Tensor]:
    """Return uncertainty and error of the same points, or two numbers of other names, both as flat tensors."""
    doubts, errors = number_vector(names[0], uncertainty), number_vector(names[1], error, infinite=False)
    if doubts.shape != errors.shape:
        words = " and ".join(names)
        raise InputError(f"{words}: {len(doubts)} and {len(errors)} numbers; one of each per point would work.")
    return doubts, errors.to(doubts.device)


def check_floor(floor: float) -> None:
    """Refuse a least variance that is not positive."""
    requirement = "a small positive variance in squared target units"
    require_positive("floor", floor, requirement=requirement, error=InputError)


def check_form(form: str) -> None:
    """Refuse all but the two forms that scores of a mixture have."""
    if form not in ("gaussian", "mixture"):
        raise InputError(f'form: {form!r} was given; "gaussian" or "mixture" would work.')


def wide(values: Tensor) -> Tensor:
    """Return values in double precision, where the device has it."""
    return values.to(torch.float32 if values.device.type == "mps" else torch.float64)


def _unexpanded(values: Tensor) -> Tensor:
    """Return the tensor without the repeats that `expand` made."""
    for axis, stride in enumerate(values.stride()):
        if stride == 0:
            values = values.narrow(axis, 0, 1)
    return values
