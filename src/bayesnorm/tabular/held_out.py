"""How good a setting is: what the networks of its folds say of rows that they did not learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..arguments import as_number
from ..likelihoods import Likelihood
from ..selection.search import minimise_on_log_scale
from ..stacked import Stack
from .targets import Affine, NumberTargets
from .trainer import Trainer

DRAWS = 32
MOST_ROWS = 5_000

SIZES = (1.0, 4.0, 16.0)
"""Effective batch sizes that are looked at, times that of training."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The folds, and how their networks are scored.

    Args:
        trainer: The rows, and what networks learn.
        folds: Row numbers of each.
        likelihood: In standard units.
        noise: Whether its noise is open: then each setting is scored with the best for it.
        effective_batch_size: That of the draws; None is that of training, and "score" the best for a setting.
    """

    trainer: Trainer
    folds: tuple[Tensor, ...]
    likelihood: Likelihood
    noise: bool
    effective_batch_size: str | float | None

    @property
    def others(self) -> list[Tensor]:
        """The training rows of each fold."""
        return [torch.cat([f for k, f in enumerate(self.folds) if k != held]) for held in range(len(self.folds))]

    def scores(self, stack: Stack, batch_size: int) -> tuple[float, Tensor]:
        """Of the folds' networks: RMSE (own units) or NLL without doubt, and the mean score of each target with it."""
        trainer, targets = self.trainer, self.trainer.targets
        most, generator = max(1, MOST_ROWS // len(self.folds)), torch.Generator().manual_seed(trainer.seed)
        asked = [fold[torch.randperm(len(fold), generator=generator)[:most]] for fold in self.folds]
        units = [targets.scales_of(rows) for rows in self.others]
        rows, held_out = trainer.rows(self.others, units), trainer.rows(asked, units)
        outputs = [targets.outputs_in(unit) for unit in units]
        numbers = torch.cat(asked)
        y, weights = targets.values[numbers], None if targets.weights is None else targets.weights[numbers]
        center = _joined(stack.predict(held_out)[None], asked, outputs)
        drawn = [center]
        if trainer.method == "dropout":
            masks = stack.dropout_masks(DRAWS, trainer.seed)
            drawn = [_joined(stack.predict_under(masks, held_out), asked, outputs)]
        elif trainer.method != "ensemble":
            statistics = stack.batch_statistics(rows, batch_size, DRAWS, trainer.seed)
            drawn = [
                _joined(stack.predict_under(statistics.at_batch_size(size), held_out), asked, outputs)
                for size in self._sizes(batch_size)
            ]
        best = min((self._best(f, y, weights) for f in drawn), key=lambda scores: float(scores.mean()))
        return self._point_score(center, y, weights), best

    def _sizes(self, batch_size: int) -> list[float]:
        if self.effective_batch_size == "score":
            return [batch_size * factor for factor in SIZES]
        given = as_number(self.effective_batch_size)
        return [float(batch_size) if given is None else given]

    def _best(self, f: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
        """Mean score of each target with the best noise, of outputs (draws, rows, outputs) in standard units."""

        def mean(likelihood: Likelihood) -> Tensor:
            return _weighted(self.trainer.targets.scores(likelihood.predictive(f), y), weights)

        if not self.noise:
            return mean(self.likelihood)
        low, high = self.likelihood.noise_range(f, y)

        def objective(level: Tensor) -> Tensor:
            found = mean(self.likelihood.with_noise(level))
            return found if level.dim() else found.mean()

        level, _ = minimise_on_log_scale(objective, low, high, grid=13, refinements=8)
        return mean(self.likelihood.with_noise(level))

    def _point_score(self, f: Tensor, y: Tensor, weights: Tensor | None) -> float:
        targets = self.trainer.targets
        if isinstance(targets, NumberTargets):
            error = (f[0, :, : targets.columns] - y) * targets.std
            return float(_weighted(error.square(), weights).mean().sqrt())
        return float(_weighted(targets.scores(targets.likelihood.predictive(f), y), weights))


def _joined(f: Tensor, asked: Sequence[Tensor], units: Sequence[Affine]) -> Tensor:
    """Outputs (draws, folds, rows, outputs), padded, as (draws, all rows, outputs) in standard units."""
    parts = [
        f[:, k, : len(rows)].double() * std + mean
        for k, (rows, (mean, std)) in enumerate(zip(asked, units, strict=True))
    ]
    return torch.cat(parts, 1)


def _weighted(scores: Tensor, weights: Tensor | None) -> Tensor:
    """Mean over rows of scores (rows, targets)."""
    if weights is None:
        return scores.mean(0)
    return (scores * weights[:, None]).sum(0) / weights.sum()
