"""Predictions of the networks of a cross-validation for their held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..likelihoods import Likelihood
from ..network import State
from ..posterior import BatchNormPosterior, mask_seeds
from .networks import BATCH_STATISTICS, LATE_LAYERS, batchnorm_method
from .search_plan import Setting
from .stacked import Stack, StackedExecutable, StackedRows, stacked_statistics
from .targets import Affine
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
        stack: One network for each entry of `test_rows`.
        train_rows: The training rows of each network.
        test_rows: The held-out rows of each network.
        samples: Number of samples, and of batches that they come from.
    """

    trainer: Trainer
    likelihood: Likelihood
    setting: Setting
    stack: Stack
    train_rows: Sequence[Tensor]
    test_rows: Sequence[Tensor]
    samples: int

    @property
    def rows(self) -> Tensor:
        """All held-out rows, in the order of the outputs."""
        return torch.cat(list(self.test_rows))

    @property
    def folds(self) -> Tensor:
        """The number of the network of each of these rows."""
        return torch.cat([torch.full((len(rows),), k) for k, rows in enumerate(self.test_rows)])

    def points(self) -> Tensor:
        """Return the outputs of the networks without sampling, (rows, outputs)."""
        inputs = self._rows(self.test_rows)
        return inputs.unpadded(self._executable.point(inputs)[None])[0]

    def outputs(self, size: float | None = None) -> Tensor:
        """Return sampled outputs, (samples, rows, outputs); one "sample" if the method does not sample.

        Args:
            size: The effective batch size; None for the training batch size.
        """
        if self.trainer.method == "ensemble":
            return self.points()[None]
        states = self._states(size)
        if not states:  # dropout with rate 0
            return self.points().expand(self.samples, -1, -1)
        inputs = self._rows(self.test_rows)
        return inputs.unpadded(self._executable.run(states, inputs))

    def score(self) -> tuple[float, Tensor]:
        """Return the RMSE or NLL of the networks without sampling, and each target's mean score at the best noise.

        The RMSE is in the units of the targets.
        """
        targets, f, y = self.trainer.targets, self.points(), self.trainer.targets.values[self.rows]
        weights = torch.ones(len(y), 1) if targets.weights is None else targets.weights[self.rows][:, None]
        candidates = [
            (weights * targets.scores(targets.likelihood.predictive(targets.tempered(f, c)[None]), y)).mean(0)
            for c in FACTORS
        ]
        best = min(candidates, key=lambda scores: float(scores.mean()))
        return targets.point_score(targets.likelihood.predictive(f[None]), y), best

    def in_order(self, values: Tensor, axis: int) -> Tensor:
        """Return values of the held-out rows in the order of their row numbers."""
        return values.index_select(axis, self.rows.argsort())

    @property
    def _units(self) -> list[Affine]:
        return [self.trainer.targets.scales_of(rows) for rows in self.train_rows]

    def _rows(self, lists: Sequence[Tensor]) -> StackedRows:
        return self.trainer.rows(self.setting.encoding, lists, self._units)

    @property
    def _executable(self) -> StackedExecutable:
        """The networks, with outputs in standard units."""
        shift, scale = zip(*(self.trainer.targets.outputs_in(unit) for unit in self._units), strict=True)
        return StackedExecutable(self.stack, torch.stack(scale), torch.stack(shift))

    def _states(self, size: float | None) -> State:
        """Sample the last layers' batch statistics, or dropout masks, for all networks."""
        method, seed = self.trainer.method, self.trainer.seed
        if method not in BATCH_STATISTICS:
            rates = {name: float(rate[0]) for name, rate in self.stack.rates.items()}
            return {f"{name}.seed": seeds for name, seeds in mask_seeds(rates, self.samples, seed).items()}
        fitted = batchnorm_method(method, self.setting.batch_size, self.samples)
        seeds = [seed] * len(self.stack)
        collected = stacked_statistics(
            self.stack, self._rows(self.train_rows), self.setting.batch_size, fitted.states, seeds
        )
        posterior: Any = BatchNormPosterior(self._executable, self.likelihood, **fitted.learned(collected))  # type: ignore[arg-type]
        states = (posterior if size is None else posterior.at_batch_size(size)).sample(self.samples, seed)
        late = self.stack.norms[-LATE_LAYERS].name
        return {name: state for name, state in states.items() if name.startswith(f"{late}.")}
