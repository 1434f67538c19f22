"""Predictions of the networks of a cross-validation for their held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..network import State
from ..posterior import BatchNormPosterior, mask_seeds
from .networks import BATCH_STATISTICS, LATE_LAYERS, batchnorm_method
from .search_plan import Setting
from .stacked import Stack, StackedExecutable, StackedRows, stacked_statistics
from .targets import Affine
from .trainer import FACTORS, Trainer

# Number of samples of each network, and of batches that they come from.
SAMPLES = 16


@dataclass(frozen=True, eq=False)
class Split:
    """The rows of several networks, by number.

    Args:
        train_rows: The training rows of each network.
        test_rows: The held-out rows of each network.
    """

    train_rows: tuple[Tensor, ...]
    test_rows: tuple[Tensor, ...]

    @classmethod
    def from_folds(cls, folds: Sequence[Tensor]) -> Self:
        """Return a split with one network for each fold, trained on all other folds."""
        others = (torch.cat([*folds[:k], *folds[k + 1 :]]).sort().values for k in range(len(folds)))
        return cls(tuple(others), tuple(folds))

    def __len__(self) -> int:
        return len(self.test_rows)

    def first(self, count: int) -> Split:
        """Return the rows of the first networks."""
        return Split(self.train_rows[:count], self.test_rows[:count])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Networks with their held-out rows; all outputs are in standard units.

    Args:
        trainer: The rows and targets.
        setting: How the networks were trained.
        stack: The networks.
        split: Their rows.
    """

    trainer: Trainer
    setting: Setting
    stack: Stack
    split: Split

    @property
    def rows(self) -> Tensor:
        """All held-out rows, in the order of the outputs."""
        return torch.cat(self.split.test_rows)

    @property
    def folds(self) -> Tensor:
        """The number of the network of each of these rows."""
        return torch.cat([torch.full((len(rows),), k) for k, rows in enumerate(self.split.test_rows)])

    def points(self) -> Tensor:
        """Return the outputs of the networks without sampling, (rows, outputs)."""
        inputs = self._rows(self.split.test_rows)
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
            return self.points().expand(SAMPLES, -1, -1)
        inputs = self._rows(self.split.test_rows)
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
        return [self.trainer.targets.scales_of(rows) for rows in self.split.train_rows]

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
            return {f"{name}.seed": seeds for name, seeds in mask_seeds(rates, SAMPLES, seed).items()}
        fitted = batchnorm_method(method, self.setting.batch_size, SAMPLES)
        rows, seeds = self._rows(self.split.train_rows), [seed] * len(self.stack)
        statistics = stacked_statistics(self.stack, rows, self.setting.batch_size, fitted.states, seeds)
        executable: Any = self._executable
        posterior: Any = BatchNormPosterior(executable, self.trainer.targets.likelihood, **fitted.learned(statistics))
        states = (posterior if size is None else posterior.at_batch_size(size)).sample(SAMPLES, seed)
        late = self.stack.norms[-LATE_LAYERS].name
        return {name: state for name, state in states.items() if name.startswith(f"{late}.")}
