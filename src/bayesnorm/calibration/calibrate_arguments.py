"""Check the arguments of `calibrate`: where to search the noise and M', and validation data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..arguments import as_number, require_positive
from ..errors import BayesNormError
from ..posterior import Posterior, effective_batch_size
from .held_out_scores import Between
from .sampled_outputs import Case


def require_noise(noise: Any) -> bool | Between:
    """Return whether, or in which range, the noise is fitted; raise an error for anything else."""
    if isinstance(noise, bool):
        return noise
    ends = [as_number(end) for end in noise] if isinstance(noise, tuple | list) else []
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None and 0 < ends[0] < ends[1] < math.inf:
        return ends[0], ends[1]
    raise BayesNormError(f"noise must be True, False or (low, high), two positive numbers, got {noise!r}.")


def require_batch_sizes(batch_size: Any) -> bool | list[float] | None:
    """Return where to search M': everywhere (True), nowhere (False), these sizes, or by default (None)."""
    if batch_size is None or isinstance(batch_size, bool):
        return batch_size
    several = isinstance(batch_size, Iterable) and not isinstance(batch_size, str)
    sizes = [require_positive("batch_size", size) for size in batch_size] if several else []
    if not sizes:
        raise BayesNormError(
            f"batch_size must be True, False or several numbers, such as [16, 32, 64], got {batch_size!r}."
        )
    return sizes


def validation_cases(posterior: Posterior, x: Any, y: Any, folds: Sequence[Case] | None) -> list[Case]:
    """Return the validation data as (posterior, x, y), one for each fold."""
    if not isinstance(posterior, Posterior):
        raise BayesNormError(
            "posterior must be the result of a method's fit, or deterministic(model, likelihood), got "
            f"{type(posterior).__name__}."
        )
    if (folds is None) == (x is None):
        raise BayesNormError(
            "calibrate needs validation data exactly once. Pass x and y, or folds=[(posterior, x, y), ...]."
        )
    if folds is None:
        return [(posterior, *posterior.executable.labelled(x, y))]
    if not isinstance(folds, Iterable):
        raise BayesNormError(f"folds must be [(posterior, x, y), ...], got {type(folds).__name__}.")
    cases = []
    for number, fold in enumerate(folds):
        if not isinstance(fold, tuple | list) or len(fold) != 3 or not isinstance(fold[0], Posterior):
            raise BayesNormError(f"folds[{number}] must be (posterior, x, y), got {type(fold).__name__}.")
        if (effective_batch_size(fold[0]) is None) != (effective_batch_size(posterior) is None):
            raise BayesNormError(f"folds[{number}] has another kind of posterior than the one to calibrate.")
        cases.append((fold[0], *fold[0].executable.labelled(fold[1], fold[2], f"folds[{number}]")))
    if not cases:
        raise BayesNormError("folds is empty. Pass one (posterior, x, y) per fold.")
    return cases
