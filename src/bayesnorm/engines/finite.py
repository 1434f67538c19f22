"""Checks that predictions are finite, with errors that name the cause."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import NotFiniteError
from ..network import numbered
from ..predictive import MultiTaskPredictive, Predictive, at_least_single, largest_number
from .base import Drawable


def require_finite(
    posterior: Drawable, x: Any, f: Tensor, predictive: Predictive, passed: Callable[[Tensor | bool], bool] = bool
) -> None:
    """Raise an error if means or variances of outputs are not finite. The error names the examples and the cause.

    It reads the outputs once, and waits for a GPU once.

    Args:
        posterior: The posterior that was sampled.
        x: The inputs.
        f: Outputs, (n, batch, *out).
        predictive: The predictive for these outputs.
        passed: Reads a check, together with those of the inputs, see `delayed_checks`.
    """
    if not passed(_moderate(f)):
        finite_summary(posterior, x, predictive, dtype=f.dtype)


def finite_summary(
    posterior: Drawable,
    x: Any,
    predictive: Predictive,
    passed: Callable[[Tensor | bool], bool] = bool,
    dtype: torch.dtype | None = None,
) -> Predictive:
    """Return the summary, or raise an error that names the examples whose means or variances are not finite.

    Args:
        posterior, x, predictive, passed: See `require_finite`.
        dtype: The dtype of the outputs for the error; None stands for the network's.
    """
    parts = list(predictive.values()) if isinstance(predictive, MultiTaskPredictive) else [predictive]
    # Logits may be -inf, for classes that are impossible.
    good = torch.stack([_finite_rows(values) for part in parts for values in (part.mean, part.epistemic)]).all(0)
    if not passed(good.all()):
        dtype = posterior.executable.dtype if dtype is None else dtype
        raise NotFiniteError(_explained(posterior, x, (~good).nonzero().flatten().tolist(), len(good), dtype))
    return predictive


def _moderate(f: Tensor) -> Tensor | bool:
    """Return whether outputs and their variance are finite; on a GPU without waiting for it."""
    if not f.numel():
        return True
    low, high = torch.aminmax(f)
    most = largest_number(torch.promote_types(f.dtype, torch.float32))
    return (low >= -most) & (high <= most) if f.is_cuda else -most <= float(low) and float(high) <= most


def _finite_rows(values: Tensor) -> Tensor:
    return torch.isfinite(values).reshape(len(values), values.shape[1:].numel()).all(1)


def _explained(posterior: Any, x: Any, rows: list[int], count: int, dtype: torch.dtype) -> str:
    """Return the message about examples whose predictions are not finite."""
    executable, size = posterior.executable, getattr(posterior, "batch_size", None)
    where = "all rows" if len(rows) == count else numbered("row", rows)
    some = executable.input(x)[rows]
    if size is not None and bool(_moderate(at_least_single(executable.point(some)))):
        larger = getattr(posterior, "fitted_batch_size", 32)
        return (
            f"Outputs of {where} are not finite at effective batch size {size:g}, because the sampled statistics vary "
            f"too much. Use a larger one: posterior.at_batch_size({larger})."
        )
    return (
        f"x gives outputs that are not finite, or too large for {dtype}, for {where}, where its largest value is "
        f"{float(some.abs().max()):g}. Pass inputs like those in training."
    )
