"""Rows of the UCI sets as tensors, by the MCBN paper's splits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesnorm.data import load_uci, paper_split

Rows = tuple[Tensor, Tensor]
"""Inputs (N, d) and targets (N, 1)."""


@dataclass(frozen=True)
class Split:
    """The rows of one split of a set.

    Args:
        train: Rows that networks learn from.
        validation: Rows that choose what is not learned.
        test: Rows that are scored once.
        number: The number of the split; networks begin from it as their seed.
    """

    train: Rows
    validation: Rows
    test: Rows
    number: int


def paper_rows(name: str, number: int) -> tuple[Rows, Rows]:
    """Return training and test rows of a split of the paper, in the set's own units."""
    x, y = (torch.tensor(part, dtype=torch.float32) for part in load_uci(name))
    train, test = (torch.as_tensor(part) for part in paper_split(len(x), number))
    return (x[train], y[train, None]), (x[test], y[test, None])


def validated_split(name: str, number: int, most: int | None = None) -> Split:
    """Return a split of the paper, of whose training rows the first fifth are validation rows.

    Args:
        name: Name of the set.
        number: Number of the split.
        most: Training rows at most, with a quarter as many validation rows and half as many test rows; None takes all.
    """
    train, test = paper_rows(name, number)
    if most is not None:
        train, test = take(train, slice(most * 5 // 4)), take(test, slice(most // 2))
    held = len(train[0]) // 5
    return Split(take(train, slice(held, None)), take(train, slice(held)), test, number)


def take(rows: Rows, chosen: slice | Tensor) -> Rows:
    """Return some of the rows: a slice, or those of a mask or of numbers."""
    return rows[0][chosen], rows[1][chosen]
