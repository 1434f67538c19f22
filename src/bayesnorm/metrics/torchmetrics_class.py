"""The class behind `torchmetric`. It imports torchmetrics, so no other file imports this one at its top."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric  # type: ignore[import-not-found, unused-ignore]
from torchmetrics.utilities import dim_zero_cat  # type: ignore[import-not-found, unused-ignore]

from ..errors import InputError
from ..predictive import ClassificationPredictive, ClassificationSummary, RegressionPredictive, as_targets, mixture_log
from .checks import scored_labels
from .classification import accuracy, brier, ece, mean_iou, nll
from .regression import coverage, crps, gaussian_pll, mae, pll, quantile_calibration_error, rmse, sharpness, width

# Scores that are means over points.
MEANS = (mae, coverage, width, pll, gaussian_pll, crps, nll, brier, accuracy)

# Scores that are square roots of means over points.
ROOTS = (rmse, sharpness)

# Scores that need no targets.
WITHOUT_TARGETS = (width, sharpness)

# Scores that need all points at once, but only the mean over samples.
MIXTURES = (ece, mean_iou)

# Scores where higher is better.
HIGHER = (pll, gaussian_pll, accuracy, mean_iou)

# Scores where lower is better.
LOWER = (mae, rmse, quantile_calibration_error, crps, nll, brier, ece)


class ScoreMetric(Metric):  # type: ignore[misc, unused-ignore]
    """The score of all predictions since the last reset."""

    is_differentiable = False
    full_state_update = False

    def __init__(self, score: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.score, self.options = score, options
        self.keeps_examples = score not in MEANS + ROOTS
        # A MetricCollection merges metrics whose states have equal names and, after one batch, equal values.
        mark = re.sub(r"\W", "_", "_".join([score.__name__, *(f"{k}_{v!r}" for k, v in sorted(options.items()))]))
        self.names = [
            f"{part}_{mark}" for part in (("outputs", "targets") if self.keeps_examples else ("total", "points"))
        ]
        for name in self.names:
            self.add_state(
                name,
                [] if self.keeps_examples else torch.tensor(0.0),
                dist_reduce_fx="cat" if self.keeps_examples else "sum",
            )
        self.kind: Any = None

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override, unused-ignore]
        """Whether higher is better; None if that is not known."""
        return True if self.score in HIGHER else False if self.score in LOWER else None

    def update(self, predictive: Any, y: Any) -> None:
        """Add predictions and their targets."""
        if self.keeps_examples:
            outputs, self.kind = _stored(predictive, mixture=self.score in MIXTURES)
            self._add(outputs.detach(), as_targets(y, outputs.device).detach())
            return
        points = predictive.mean.numel() if isinstance(predictive, RegressionPredictive) else 1
        if isinstance(predictive, ClassificationPredictive):
            labels = as_targets(y, predictive.probs.device)
            points = int(scored_labels(predictive, labels, self.options.get("ignore_index")).sum())
        if points:
            value = self._value(predictive, y)
            self._add((value.square() if self.score in ROOTS else value) * points, torch.tensor(points))

    def compute(self) -> Tensor:
        """Return the score of everything added."""
        first, second = (getattr(self, name) for name in self.names)
        if not self.keeps_examples:
            return (first / second).sqrt() if self.score in ROOTS else first / second
        if self.kind is None:
            raise InputError("compute has no predictions yet. Call update(predictive, y) first.")
        return self._value(self.kind(dim_zero_cat(first)), dim_zero_cat(second))

    def reset(self) -> None:
        """Forget everything added."""
        super().reset()
        self.kind = None

    def _add(self, *values: Tensor) -> None:
        """Add a batch's values to the two states."""
        for name, value in zip(self.names, values, strict=True):
            state = getattr(self, name)
            if self.keeps_examples:
                state.append(value.to(self.device))
            else:
                setattr(self, name, state + value.to(state))

    def _value(self, predictive: Any, y: Any) -> Tensor:
        """Compute the score, without derivatives."""
        targets = () if self.score in WITHOUT_TARGETS else (y,)
        return self.score(predictive, *targets, **self.options).detach()


def _stored(predictive: Any, mixture: bool) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Return the predictive as one tensor, batch axis first, and a function that turns it back into a predictive."""
    if isinstance(predictive, ClassificationPredictive):
        if isinstance(predictive, ClassificationSummary) and not mixture:
            raise InputError('predictive is a summary without samples. Call predict(x) without keep="summary".')
        log_probs, weights = predictive.log_probs, predictive.weights
        if mixture:
            log_probs, weights = mixture_log(log_probs, weights)[None], weights.new_ones(1)
        return log_probs.movedim(1, 0), partial(_classification, weights, predictive.ignore_index)
    if isinstance(predictive, RegressionPredictive):
        outputs = torch.stack([predictive.loc, predictive.scale], 2).movedim(1, 0)
        return outputs, partial(_regression, predictive.weights, predictive.noise, predictive.missing)
    raise InputError(f"predictive must be the result of a posterior's `predict`, got a {type(predictive).__name__}.")


def _classification(weights: Tensor, ignore_index: int | None, outputs: Tensor) -> ClassificationPredictive:
    return ClassificationPredictive(outputs.movedim(0, 1), weights.to(outputs), ignore_index)


def _regression(weights: Tensor, noise: Any, missing: bool, outputs: Tensor) -> RegressionPredictive:
    loc, scale = outputs.movedim(0, 1).unbind(2)
    return RegressionPredictive(loc, scale, weights.to(outputs), noise, missing)
