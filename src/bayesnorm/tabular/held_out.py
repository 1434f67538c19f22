"""Predictions of the networks of a cross-validation for their held-out rows."""

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
    """Networks of folds, each with its held-out rows; all outputs are in standard units.

    Args:
        trainer: The rows and targets.
        likelihood: The likelihood of the outputs.
        setting: How the networks were trained.
        stack: One network for each of `asked`.
        learned: The training rows of each network.
        asked: The held-out rows of each network.
        samples: Number of samples, and of batches that they come from.
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
        """All held-out rows, in the order of the outputs."""
        return torch.cat(list(self.asked))

    def points(self) -> Tensor:
        """Return the outputs of the networks without sampling, (rows, outputs)."""
        executable, x = self._executable(), self._inputs()
        return by_own_rows(DeterministicPosterior(executable, self.likelihood)).executable.point(x)  # type: ignore[arg-type]

    def outputs(self, size: float | None = None) -> Tensor:
        """Return sampled outputs, (samples, rows, outputs); one "sample" if the method does not sample.

        Args:
            size: The effective batch size; None for the training batch size.
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
        """Return the RMSE or NLL of the networks without sampling, and each target's mean score at the best noise.

        The RMSE is in the units of the targets.
        """
        targets, f, y = self.trainer.targets, self.points(), self.trainer.targets.values[self.rows]
        weights = torch.ones(len(y), 1) if targets.weights is None else targets.weights[self.rows][:, None]
        found = [
            (weights * targets.scores(targets.likelihood.predictive(targets.tempered(f, c)[None]), y)).mean(0)
            for c in FACTORS
        ]
        best = min(found, key=lambda scores: float(scores.mean()))
        return targets.point_score(targets.likelihood.predictive(f[None]), y), best

    def in_order(self, values: Tensor, axis: int) -> Tensor:
        """Return values of the held-out rows in the order of their row numbers."""
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
        """Return the posterior of the method for these networks."""
        method, executable = self.trainer.method, self._executable()
        if method == "ensemble":
            return DeterministicPosterior(executable, self.likelihood)  # type: ignore[arg-type]
        rows = self.trainer.rows(self.setting.encoding, list(self.learned), self._units)
        if method == "dropout":
            return fit_stacked(MCDropout(), self.stack, rows, self.likelihood, executable=executable)
        way = batchnorm_method(method, self.setting.batch_size, self.samples)
        return fit_stacked(way, self.stack, rows, self.likelihood, executable=executable, seed=self.trainer.seed)
