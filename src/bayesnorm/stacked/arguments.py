"""What `train_stacked` is given, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..arguments import require_whole
from ..errors import BayesNormError, InputError
from .block import RowLoss, half_squared_error
from .rows import StackedRows
from .stack import Stack


def trained_rows(stack: Stack, rows: StackedRows, name: str, loss: RowLoss) -> StackedRows:
    """Rows with targets that fit the loss."""
    rows = stack.placed(rows, name)
    if rows.y is None:
        raise InputError(f"{name}: hold no targets; StackedRows.of(x, y, ...) would work.")
    if loss is half_squared_error and (rows.y.shape[1:] != (stack.widths[-1],) or not rows.y.is_floating_point()):
        raise InputError(
            f"{name}: targets have shape {tuple(rows.y.shape)} and {rows.y.dtype}, but networks have "
            f"{stack.widths[-1]} real outputs; as many real targets, or another loss, would work."
        )
    return rows


def batch_size_for(batch_size: Any, rows: StackedRows) -> int:
    """A batch size that every network has rows for."""
    least = int(rows.lengths.min())
    at = int(rows.lengths.argmin())
    words = f", and network {at} has {least} rows; a whole number from 2 to {least} would work."
    return require_whole("batch_size", batch_size, 2, least, words=words, error=InputError)


def epochs_for(epochs: Any, networks: int) -> Tensor:
    """The number of epochs of every network, (E,), on the CPU."""
    words = "; a whole number from 1, or one for each network, would work."
    try:
        given = [*epochs]
    except TypeError:  # one number
        return torch.full((networks,), require_whole("epochs", epochs, words=words))
    if len(given) != networks:
        raise BayesNormError(
            f"epochs: {len(given)} were given for {networks} networks; one, or one for each, would work."
        )
    plain = [each.item() if isinstance(each, Tensor) else each for each in given]
    return torch.tensor([require_whole("epochs", each, words=words) for each in plain])


def decay_for(weight_decay: Any, networks: int) -> Tensor:
    """lambda of every network, (E,), on the CPU."""
    try:
        found = torch.as_tensor(weight_decay, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError) as error:
        raise BayesNormError(f"weight_decay: {weight_decay!r} was given; numbers from 0 would work.") from error
    if found.dim() > 1 or (found.dim() == 1 and len(found) != networks):
        raise BayesNormError(
            f"weight_decay: has shape {tuple(found.shape)} for {networks} networks; one number, or one for each, would "
            "work."
        )
    if not bool((torch.isfinite(found) & (found >= 0)).all()):
        raise BayesNormError(f"weight_decay: {weight_decay!r} was given; numbers from 0 would work.")
    return found.expand(networks)


def groups_for(groups: Sequence[int] | Tensor | None, networks: int) -> Tensor:
    """The group of every network, (E,), counted from 0."""
    if groups is None:
        return torch.arange(networks)
    try:
        found = torch.as_tensor(groups).cpu()
    except (TypeError, ValueError) as error:
        raise BayesNormError(
            f"groups: {groups!r} was given; a whole number for each of {networks} networks would work."
        ) from error
    if found.shape != (networks,) or found.is_floating_point():
        raise BayesNormError(
            f"groups: has shape {tuple(found.shape)} and {found.dtype}; a whole number for each of {networks} networks "
            "would work."
        )
    return found.unique(return_inverse=True)[1]
