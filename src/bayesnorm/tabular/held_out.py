"""What the networks of a cross-validation say of rows that they did not learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..likelihoods import Likelihood
from ..methods import MCDropout
from ..posterior import DeterministicPosterior, effective_batch_size, resized
from ..stacked import Stack, StackedExecutable, by_own_rows, fit_stacked
from .networks import LATE_LAYERS, batchnorm_method
from .search_plan import Setting
from .trainer import FACTORS, Trainer

Folds = tuple[Tensor, ...]
"""The row numbers of each fold."""


def others(folds: Folds) -> list[Tensor]:
    """Return the training rows of each fold, in ascending order."""
    return [torch.cat([f for k, f in enumerate(folds) if k != held]).sort().values for held in range(len(folds))]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Networks of folds, each asked about the rows of its own; all outputs are in standard units.

    Args:
        trainer: The rows, and what networks learn.
        likelihood: What outputs mean.
        setting: How the networks were trained.
        stack: One network for each of `asked`.
        learned: The rows that each network learned from.
        asked: The rows that each is asked about.
        samples: How many samples are taken, and how many batches they come from.
    """

    trainer: Trainer
    likelihood: Likelihood
    setting: Setting
    stack: Stack
    learned: Sequence[Tensor]
    asked: Sequence[Tensor]
    samples: int

    @property
    def rows(self) -> Tensor:
        """The rows that are asked about, in the order of all outputs here."""
        return torch.cat(list(self.asked))

    def points(self) -> Tensor:
        """Return outputs of the networks as they are, (rows, outputs)."""
        executable, x = self._executable(), self._inputs()
        return by_own_rows(DeterministicPosterior(executable, self.likelihood)).executable.point(x)  # type: ignore[arg-type]

    def outputs(self, size: float | None = None) -> Tensor:
        """Return outputs under samples, (samples, rows, outputs); of networks as they are where the method samples nothing.

        Args:
            size: The effective batch size; None for that of training.
        """
        posterior = by_own_rows(self._posterior())
        if isinstance(posterior, DeterministicPosterior):
            return posterior.executable.point(self._inputs())[None]
        if size is not None and effective_batch_size(posterior) is not None:
            posterior = resized(posterior, size)
        states = posterior.sample(self.samples, self.trainer.seed)
        if self.stack.norms:
            drawn = self.stack.norms[-LATE_LAYERS].name
            states = {name: state for name, state in states.items() if name.startswith(f"{drawn}.")}
        return posterior.executable.run(states, self._inputs())

    def score(self) -> tuple[float, Tensor]:
        """Score the networks as they are: RMSE (own units) or NLL, and each target's mean score at the best noise."""
        targets, f, y = self.trainer.targets, self.points(), self.trainer.targets.values[self.rows]
        weights = torch.ones(len(y), 1) if targets.weights is None else targets.weights[self.rows][:, None]
        found = [
            (weights * targets.scores(targets.likelihood.predictive(targets.tempered(f, c)[None]), y)).mean(0)
            for c in FACTORS
        ]
        best = min(found, key=lambda scores: float(scores.mean()))
        return targets.point_score(targets.likelihood.predictive(f[None]), y), best

    def in_order(self, values: Tensor, axis: int) -> Tensor:
        """Return values of the asked rows in the order of their numbers."""
        return values.index_select(axis, self.rows.argsort())

    @property
    def _units(self) -> list[Any]:
        return [self.trainer.targets.scales_of(rows) for rows in self.learned]

    def _inputs(self) -> Any:
        return self.trainer.rows(self.setting.encoding, list(self.asked), self._units)

    def _executable(self) -> StackedExecutable:
        moved = [self.trainer.targets.outputs_in(unit) for unit in self._units]
        shift, scale = (torch.stack(part) for part in zip(*moved, strict=True))
        return StackedExecutable(self.stack, scale, shift)

    def _posterior(self) -> Any:
        """Return the method's posterior over the networks."""
        method, executable = self.trainer.method, self._executable()
        if method == "ensemble":
            return DeterministicPosterior(executable, self.likelihood)  # type: ignore[arg-type]
        rows = self.trainer.rows(self.setting.encoding, list(self.learned), self._units)
        if method == "dropout":
            return fit_stacked(MCDropout(), self.stack, rows, self.likelihood, executable=executable)
        way = batchnorm_method(method, self.setting.batch_size, self.samples)
        return fit_stacked(way, self.stack, rows, self.likelihood, executable=executable, seed=self.trainer.seed)
