"""Refuse predictions that are not finite, and say what is too extreme for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import NotFiniteError
from ..network import Executable, numbered
from ..predictive import MultiTaskPredictive, Predictive
from ..predictive.base import at_least_single, largest_number
from .base import Drawable


def require_finite(posterior: Drawable, x: Any, f: Tensor, predictive: Predictive) -> None:
    """Refuse outputs whose means or variances are not finite, and say of which rows and why.

    It looks at outputs once, and on a GPU waits for them once.

    Args:
        posterior: What was drawn from.
        x: The inputs.
        f: Outputs, (n, batch, *out).
        predictive: What the likelihood makes of them.
    """
    if not _moderate(f):
        _require_finite(posterior, x, predictive, f.dtype)


def finite_summary(posterior: Drawable, x: Any, predictive: Predictive) -> Predictive:
    """Return a summary, or refuse it where means or variances are not finite, and say of which rows and why."""
    _require_finite(posterior, x, predictive, posterior.executable.dtype)
    return predictive


def _require_finite(posterior: Drawable, x: Any, predictive: Predictive, dtype: torch.dtype) -> None:
    """Refuse means or variances that are not finite."""
    parts = list(predictive.values()) if isinstance(predictive, MultiTaskPredictive) else [predictive]
    # Outputs of classes may well be -inf, for those that are ruled out.
    good = torch.stack([_finite_rows(part) for own in parts for part in (own.mean, own.epistemic)]).all(0)
    if not bool(good.all()):
        raise NotFiniteError(_explained(posterior, x, (~good).nonzero().flatten().tolist(), len(good), dtype))


def _moderate(f: Tensor) -> bool:
    """Tell whether outputs are finite, and such that their variance is."""
    if not f.numel():
        return True
    low, high = torch.aminmax(f)
    most = largest_number(torch.promote_types(f.dtype, torch.float32))
    return bool((low >= -most) & (high <= most))


def _finite_rows(values: Tensor) -> Tensor:
    return torch.isfinite(values).reshape(len(values), values.shape[1:].numel()).all(1)


def _explained(posterior: Any, x: Any, rows: list[int], count: int, dtype: torch.dtype) -> str:
    """Return a message about rows whose predictions are not finite."""
    executable, size = posterior.executable, getattr(posterior, "batch_size", None)
    if not isinstance(executable, Executable):  # of a stack
        return (
            f"x: outputs of {numbered('network', rows)} are not finite, or too large for {dtype}; inputs like those "
            "that they were trained on, or a larger effective batch size, would work."
        )
    where = "all rows" if len(rows) == count else numbered("row", rows)
    some = executable.input(x)[rows]
    if size is not None and _moderate(at_least_single(executable.point(some))):
        larger = getattr(posterior, "fitted_batch_size", 32)
        return (
            f"batch_size: at an effective batch size of {size:g} statistics are moved so far that outputs of {where} "
            f"are not finite; a larger one, as posterior.at_batch_size({larger}) has, would work."
        )
    return (
        f"x: outputs of {where} are not finite, or too large for {dtype}, where inputs reach "
        f"{float(some.abs().max()):g}; inputs like those that the network was trained on would work."
    )
