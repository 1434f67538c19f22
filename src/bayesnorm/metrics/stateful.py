"""Scores that gather batch by batch, for torchmetrics and its `MetricCollection`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..errors import MissingExtraError


def torchmetric(score: Callable[..., Tensor], **options: Any) -> Any:
    """Make a `torchmetrics.Metric` of a score of this package: `update(predictive, y)`, `compute()`, `reset()`.

        MetricCollection({"crps": torchmetric(metrics.crps), "rmse": torchmetric(metrics.rmse)})

    Means over points (and roots of them) keep two numbers; any other score keeps the predictions that it has seen
    and sees them all at once in `compute`, so that both give what the score says of the whole set.

    Args:
        score: A function `(predictive, y, **options)` of `bayesnorm.metrics`, or of your own.
        options: Arguments that are passed on to `score` at every call.
    """
    try:
        from .torchmetrics_class import ScoreMetric
    except ModuleNotFoundError as error:
        if error.name != "torchmetrics":
            raise
        raise MissingExtraError(
            "torchmetric needs torchmetrics: pip install torchmetrics. The score itself, called with all "
            "predictions at once, needs no extra."
        ) from error
    return ScoreMetric(score, **options)
