"""Scores that are updated batch by batch, for torchmetrics and its `MetricCollection`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..errors import MissingExtraError


def torchmetric(score: Callable[..., Tensor], **options: Any) -> Any:
    """Return a `torchmetrics.Metric` for a score, with `update(predictive, y)`, `compute()` and `reset()`.

        MetricCollection({"crps": torchmetric(metrics.crps), "rmse": torchmetric(metrics.rmse)})

    The result is the score of the whole data set. Scores that are means over points, or roots of means, store two
    numbers. Any other score stores all predictions until `compute`.

    Args:
        score: A function `(predictive, y, **options)` of `bayesnorm.metrics`, or your own.
        options: Further arguments of `score`, passed in every call.
    """
    try:
        from .torchmetrics_class import ScoreMetric
    except ModuleNotFoundError as error:
        if error.name != "torchmetrics":
            raise
        raise MissingExtraError(
            "torchmetric needs torchmetrics: pip install torchmetrics. Without it, call the score with all "
            "predictions at once."
        ) from error
    return ScoreMetric(score, **options)
