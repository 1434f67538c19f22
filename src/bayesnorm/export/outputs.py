"""The named outputs of an exported posterior: what they are, and how large their errors are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..errors import BayesNormError
from ..predictive import ClassificationPredictive, MultiTaskPredictive, Predictive, RegressionPredictive

Interval = Callable[[RegressionPredictive], tuple[Tensor, Tensor]]

REGRESSION: dict[str, Callable[[Any], Tensor]] = {
    "predictive_mean": lambda p: p.mean,
    "epistemic_std": lambda p: p.epistemic.sqrt(),
    "aleatoric_std": lambda p: p.aleatoric.sqrt(),
    "predictive_std": lambda p: p.std,
}
"""Outputs of regression, besides the ends of the interval."""

ENDS = ("lower", "upper")

CLASSIFICATION: dict[str, Callable[[Any], Tensor]] = {
    "probs": lambda p: p.probs,
    "label": lambda p: p.label,
    "entropy": lambda p: p.entropy,
    "mutual_information": lambda p: p.mutual_information,
    "confidence": lambda p: p.confidence,
    "expected_entropy": lambda p: p.expected_entropy,
}
"""Outputs of classification, per example or pixel."""

DEFAULT = (
    "predictive_mean",
    "epistemic_std",
    "aleatoric_std",
    *ENDS,
    "probs",
    "label",
    "entropy",
    "mutual_information",
)

REFERENCES = ("predictive_mean", "probs")
"""The outputs that errors of others are compared with."""


def output_names(predictive: Predictive, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the outputs for a predictive of this kind, or raise an error.

    Args:
        predictive: Any predictive of the posterior.
        names: Names of outputs; None for the default ones. With several tasks, every task has these outputs.
    """
    possible = list(dict.fromkeys(name for part in _tasks(predictive).values() for name in _possible(part)))
    chosen = tuple(name for name in possible if name in DEFAULT) if names is None else tuple(names)
    unknown = [name for name in chosen if name not in possible]
    if unknown or not chosen or len(set(chosen)) < len(chosen):
        raise BayesNormError(
            f"outputs={list(chosen)!r}, but a {type(predictive).__name__} has the outputs {', '.join(possible)}. "
            "Choose some of them, each once."
        )
    return chosen


def read_outputs(
    predictive: Predictive, names: Sequence[str], interval: Callable[[str], Interval]
) -> dict[str, Tensor]:
    """Return the named values of a predictive.

    Args:
        predictive: The predictive.
        names: Names of outputs.
        interval: Returns the function that computes the ends of intervals of a task.
    """
    values: dict[str, Tensor] = {}
    for task, part in _tasks(predictive).items():
        prefix = f"{task}_" if task else ""
        readers = _possible(part)
        ends = dict(zip(ENDS, interval(task)(part), strict=True)) if set(names) & set(ENDS) & set(readers) else {}  # type: ignore[arg-type]
        for name in names:
            if name in readers:
                values[prefix + name] = ends[name] if name in ends else readers[name](part)
    return values


def tasks_of(predictive: Predictive) -> Mapping[str, Predictive]:
    """Return the predictive of every task; a predictive of one task has the name ""."""
    return _tasks(predictive)


def largest_error(values: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[float, str]:
    """Return the largest difference of outputs from the expected ones, and the name of that output.

    A difference is relative to the largest expected value of the output. Numbers that result from a difference of
    larger ones cannot be more accurate than these: standard deviations count relative to at least 1 % of the largest
    mean, entropies relative to at least 1 % of log(classes). A label counts by how much less probable it is.

    Args:
        values: Arrays by name.
        expected: Arrays by name; labels need the probabilities beside them.
    """
    worst, name_of_worst = 0.0, ""
    for name, value in values.items():
        prefix = name[: len(name) - len(_bare(name))]
        reference = expected.get(f"{prefix}probs", expected.get(f"{prefix}predictive_mean"))
        error = _error(_bare(name), value, expected[name], reference)
        if not error <= worst:  # NaN as well
            worst, name_of_worst = error, name
    return worst, name_of_worst


def _error(name: str, value: Any, target: Any, reference: Any) -> float:
    if value.shape != target.shape:
        return math.inf
    if not value.size:
        return 0.0
    if name == "label":
        return float((reference.max(1) - np.take_along_axis(reference, value[:, None], axis=1)[:, 0]).max())
    same = value == target
    wide = value.astype("float64") - target.astype("float64")
    wide[same] = 0
    scale = abs(target[abs(target) < math.inf]).max(initial=0.0)
    if name in ("entropy", "mutual_information", "expected_entropy"):
        scale = max(scale, 0.01 * math.log(max(2, reference.shape[1])))
    elif name not in ("probs", "confidence", "predictive_mean"):
        scale = max(scale, 0.01 * abs(reference).max())
    return float(abs(wide).max() / max(scale, 1e-30))


def _bare(name: str) -> str:
    """Return the name of an output without the task before it."""
    names = (*REGRESSION, *ENDS, *CLASSIFICATION)
    return next(bare for bare in names if name == bare or name.endswith(f"_{bare}"))


def _possible(predictive: Predictive) -> dict[str, Callable[[Any], Tensor]]:
    if isinstance(predictive, ClassificationPredictive):
        return CLASSIFICATION
    if isinstance(predictive, RegressionPredictive):
        return REGRESSION | dict.fromkeys(ENDS, REGRESSION["predictive_mean"])
    raise BayesNormError(
        f"{type(predictive).__name__} cannot be exported. Use a likelihood of regression or of classes."
    )


def _tasks(predictive: Predictive) -> Mapping[str, Predictive]:
    return predictive if isinstance(predictive, MultiTaskPredictive) else {"": predictive}
