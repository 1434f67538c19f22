"""Rows of one data set: test rows of every split, and training rows of every fold, for stacks of networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from bayesnorm.tabular.stacked import StackedRows

from ..data import load_uci
from ..splits import paper_split
from ..stacked_networks import standardised_rows
from .presets import WIDTHS


@dataclass(frozen=True)
class Fold:
    """Rows of one split, or of one fold of it, by index.

    Args:
        split: Number of the split.
        train: Rows for training, and for standardisation.
        held: Rows that are scored: validation rows, or the split's test rows.
    """

    split: int
    train: Tensor = field(repr=False)
    held: Tensor = field(repr=False)


@dataclass(frozen=True)
class Data:
    """A data set, its splits, and their folds.

    Args:
        name: Name of the set.
        splits: Numbers of the splits.
        folds: Number of folds of each split's training rows.
    """

    name: str
    splits: tuple[int, ...]
    folds: int

    @cached_property
    def table(self) -> tuple[Tensor, Tensor]:
        """Return x and y in their own units."""
        x, y = load_uci(self.name)
        return torch.from_numpy(x).float(), torch.from_numpy(y).float()

    @property
    def inputs(self) -> int:
        """Return the number of columns of x."""
        return self.table[0].shape[1]

    @property
    def width(self) -> int:
        """Return the number of units of a hidden layer."""
        return WIDTHS.get(self.name, 50)

    @cached_property
    def whole(self) -> list[Fold]:
        """Return training and test rows of every split."""
        results = []
        for split in self.splits:
            train, test = paper_split(len(self.table[0]), split)
            results.append(Fold(split, torch.from_numpy(train), torch.from_numpy(test)))
        return results

    @cached_property
    def validated(self) -> list[Fold]:
        """Return the folds of the training rows: all of the first split, then those of the next."""
        results = []
        for whole in self.whole:
            parts = [torch.from_numpy(part) for part in np.array_split(whole.train.numpy(), self.folds)]
            for fold, held in enumerate(parts):
                rest = torch.cat(parts[:fold] + parts[fold + 1 :])
                results.append(Fold(whole.split, rest, held))
        return results

    def train_rows(self, folds: list[Fold]) -> StackedRows:
        """Return training rows of one network for each fold, standardised with their own moments."""
        return standardised_rows(*self.table, [fold.train for fold in folds])

    def held_rows(self, folds: list[Fold], train: StackedRows) -> StackedRows:
        """Return held-out rows, standardised like the training rows."""
        return standardised_rows(*self.table, [fold.held for fold in folds], train.scales)

    @property
    def fewest(self) -> int:
        """Return the number of training rows of the smallest fold; a batch must be smaller, so that batches differ."""
        return min(len(fold.train) for fold in self.validated)
