"""Rows of the UCI sets as tensors, in the MCBN paper's splits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesnorm.arguments import as_whole
from bayesnorm.errors import BayesNormError

from .data import load_uci

Rows = tuple[Tensor, Tensor]
"""Inputs (N, d) and targets (N, 1)."""


@dataclass(frozen=True)
class Split:
    """The rows of one split of a set.

    Args:
        train: Training rows.
        validation: Rows for choosing hyper-parameters.
        test: Rows that are scored once.
        number: The number of the split, which is also the seed of networks.
    """

    train: Rows
    validation: Rows
    test: Rows
    number: int


def paper_split(n_rows: int, split: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the MCBN paper's split number `split` (1 to 5; larger numbers continue in the same way) of `n_rows` rows.

    NumPy's legacy generator, seeded with `split`, shuffles the row numbers; the first round(0.2 N) are the test rows.
    With the row order of `load_uci` these are the paper's own test sets.

    Returns:
        `(train_rows, test_rows)`, each in shuffled order.
    """
    if (as_whole(n_rows) or 0) < 3:
        raise BayesNormError(f"n_rows must be at least 3 to leave a test row, got {n_rows!r}.")
    if not 1 <= (as_whole(split) or 0) < 2**32:
        raise BayesNormError(f"split must be a whole number from 1 (the paper has 1 to 5), got {split!r}.")
    rows = np.arange(n_rows, dtype=np.int64)
    np.random.RandomState(split).shuffle(rows)
    n_test = round(0.2 * n_rows)
    return rows[n_test:], rows[:n_test]


def paper_rows(name: str, number: int) -> tuple[Rows, Rows]:
    """Return training and test rows of a split of the paper, in the set's own units."""
    x, y = (torch.tensor(part, dtype=torch.float32) for part in load_uci(name))
    train, test = (torch.as_tensor(part) for part in paper_split(len(x), number))
    return (x[train], y[train, None]), (x[test], y[test, None])


def validated_split(name: str, number: int, most: int | None = None) -> Split:
    """Return a split of the paper in which the first fifth of the training rows are validation rows.

    Args:
        name: Name of the set.
        number: Number of the split.
        most: Most training rows, with a quarter as many validation rows and half as many test rows; None takes all.
    """
    train, test = paper_rows(name, number)
    if most is not None:
        train, test = take(train, slice(most * 5 // 4)), take(test, slice(most // 2))
    held = len(train[0]) // 5
    return Split(take(train, slice(held, None)), take(train, slice(held)), test, number)


def take(rows: Rows, chosen: slice | Tensor) -> Rows:
    """Return some of the rows: a slice, a mask or indices."""
    return rows[0][chosen], rows[1][chosen]
