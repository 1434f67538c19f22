"""How good a setting is: what the networks of its folds say of rows that they did not learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..arguments import as_number
from ..engines import MonteCarlo
from ..likelihoods import Likelihood
from ..methods import MCDropout
from ..posterior import PointPosterior, Posterior, effective_batch_size, resized
from ..predictive import RegressionPredictive
from ..selection import calibrate
from ..stacked import Stack, StackedExecutable, StackedRows, by_own_rows, fit_stacked
from .networks import batchnorm_method
from .search_results import OutOfFold
from .targets import Affine, NumberTargets
from .trainer import Trainer

# Draws that settings are compared with.
DRAWS = 32

# Steps in the search for the noise, which need not be exact to compare settings.
REFINEMENTS = 8

# Held-out rows that a setting is scored on, of all folds together.
MOST_ROWS = 5_000

# Effective batch sizes that are looked at, times that of training.
SIZES = (1.0, 4.0, 16.0)


FoldCase = tuple[Posterior, Tensor, Tensor]
"""A fold's posterior, the inputs that its network did not learn from, and their row numbers."""


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The folds, and how their networks are scored.

    Args:
        trainer: The rows, and what networks learn.
        folds: The row numbers of each fold.
        likelihood: What outputs mean, in standard units.
        noise: Whether the likelihood's noise is open: then each setting is scored with the best for it.
        effective_batch_size: The effective batch size of the draws; None takes that of training, and "score" the best
            for a setting.
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
        """Score the folds' networks: RMSE (own units) or NLL without doubt, and each target's mean score with it."""
        trainer, targets = self.trainer, self.trainer.targets
        asked = [fold[self._representative(fold)] for fold in self.folds]
        units = [targets.scales_of(rows) for rows in self.others]
        x, y = trainer.rows(asked, units), targets.values[torch.cat(asked)]
        posterior = self._posterior(stack, trainer.rows(self.others, units), units, batch_size)
        by_score = self.effective_batch_size == "score" and effective_batch_size(posterior) is not None
        if self.noise or by_score:
            sizes = [batch_size * factor for factor in SIZES] if by_score else False
            posterior = calibrate(
                posterior,
                x,
                y,
                batch_size=sizes,
                noise=self.noise,
                samples=DRAWS,
                refinements=REFINEMENTS,
                seed=trainer.seed,
            )
        predictive = posterior.predict(x, MonteCarlo(DRAWS), trainer.seed)
        point = targets.likelihood.predictive(posterior.executable.point(x)[None])
        return targets.point_score(point, y), targets.scores(predictive, y).mean(0)

    def predictions(
        self, cases: Sequence[FoldCase], likelihood: Likelihood, size: float | None, samples: int
    ) -> OutOfFold:
        """Predict all held-out rows, each by its own fold's posterior, in the targets' own units and the rows' order.

        Args:
            cases: Each fold's posterior with its held-out inputs and row numbers.
            likelihood: The likelihood that was chosen, in standard units.
            size: The effective batch size that was chosen; None where there is none.
            samples: How many draws.
        """
        targets, parts = self.trainer.targets, []
        for posterior, x, _ in cases:
            sized = posterior if size is None else resized(posterior, size)
            parts.append(MonteCarlo(samples).outputs(sized, x, self.trainer.seed))
        rows = torch.cat([held_out for _, _, held_out in cases])
        order = rows.argsort()
        predictive = likelihood.predictive(torch.cat(parts, 1)[:, order])
        fold = torch.cat([torch.full((len(held_out),), k) for k, (_, _, held_out) in enumerate(cases)])
        target = targets.values[rows[order]]
        if isinstance(targets, NumberTargets) and isinstance(predictive, RegressionPredictive):
            target, predictive = targets.in_own_values(target), targets.in_own_predictive(predictive)
        weight = None if targets.weights is None else targets.weights[rows[order]].numpy()
        return OutOfFold(rows[order].numpy(), fold[order].numpy(), target.numpy(), weight, predictive)

    def _posterior(self, stack: Stack, rows: StackedRows, units: Sequence[Affine], batch_size: int) -> Any:
        """The method's posterior over the folds' networks, in standard units, each asked about its own rows."""
        moved = [self.trainer.targets.outputs_in(unit) for unit in units]
        shift, scale = (torch.stack(part) for part in zip(*moved, strict=True))
        executable, method = StackedExecutable(stack, scale, shift), self.trainer.method
        if method == "ensemble":
            return by_own_rows(PointPosterior(executable, self.likelihood))  # type: ignore[arg-type]
        if method == "dropout":
            return by_own_rows(fit_stacked(MCDropout(), stack, rows, self.likelihood, executable=executable))
        fitted = fit_stacked(
            batchnorm_method(method, batch_size, DRAWS),
            stack,
            rows,
            self.likelihood,
            executable=executable,
            seed=self.trainer.seed,
        )
        given = as_number(self.effective_batch_size)
        return by_own_rows(fitted if given is None else resized(fitted, given))

    def _representative(self, fold: Tensor) -> Tensor:
        """Places of some rows of a fold, at most so many."""
        most = max(1, MOST_ROWS // len(self.folds))
        weights = self.trainer.targets.weights
        if weights is not None:
            return as_often_as_weights_want(weights[fold], most)
        return torch.randperm(len(fold), generator=torch.Generator().manual_seed(self.trainer.seed))[:most]


def as_often_as_weights_want(weights: Tensor, most: int) -> Tensor:
    """Choose places of rows, evenly spaced along the summed weights: each as often as its share says, give or take 1.

    Args:
        weights: How much each row counts, (n,), mean about 1.
        most: How many places to give at most; four for every row would be enough.
    """
    count = min(most, round(4 * float(weights.sum())))
    ends = weights.double().cumsum(0)
    return torch.searchsorted(ends, (torch.arange(count) + 0.5) / count * ends[-1]).clamp_max(len(weights) - 1)
