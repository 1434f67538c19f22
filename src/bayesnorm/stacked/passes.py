"""Passes of all networks of a stack over rows in evaluation mode, in pieces that bound memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .architecture import Dense, Drop, Norm
from .cores import in_threads

if TYPE_CHECKING:
    from .draws import StackedDraws
    from .stack import Stack

PIECE = {"cpu": 2**18, "cuda": 2**26}
"""Numbers in the largest activation of a piece: what a core's cache holds, or half a gigabyte."""

Normalise = Callable[[Norm, Tensor], Tensor]
"""What a batch-norm layer makes of its input h, (networks, draws, rows, channels)."""

Thin = Callable[[Drop, Tensor], Tensor]
"""What a dropout layer makes of it."""


def piece_size(stack: Stack) -> int:
    return PIECE.get(stack.device.type, PIECE["cpu"])


def run(stack: Stack, members: slice, h: Tensor, norm: Normalise, drop: Thin) -> Tensor:
    """Push h, (networks, draws, rows, inputs), through some of the networks."""
    for layer in stack.layers:
        if isinstance(layer, Dense):
            networks, draws, rows, inputs = h.shape
            weight = stack.weights[f"{layer.name}.weight"][members].mT
            h = h.reshape(networks, draws * rows, inputs)
            if layer.bias:
                h = torch.baddbmm(stack.weights[f"{layer.name}.bias"][members].unsqueeze(1), h, weight)
            else:
                h = torch.bmm(h, weight)
            h = h.view(networks, draws, rows, layer.outputs)
        elif isinstance(layer, Norm):
            h = norm(layer, h)
        elif isinstance(layer, Drop):
            h = drop(layer, h)
        else:
            h = layer.module(h)
    return h


def unchanged(_layer: Any, h: Tensor) -> Tensor:
    return h


def by_running_statistics(stack: Stack, members: slice) -> Normalise:
    """What batch norm does in evaluation mode."""

    def normalise(layer: Norm, h: Tensor) -> Tensor:
        mean, var = (stack.buffers[f"{layer.name}.running_{part}"][members] for part in ("mean", "var"))
        return normalised(stack, members, layer, h, mean[:, None], torch.rsqrt(var + layer.eps)[:, None])

    return normalise


def normalised(stack: Stack, members: slice, layer: Norm, h: Tensor, mean: Tensor, inverse_std: Tensor) -> Tensor:
    """Batch norm of h with statistics (networks, draws, channels)."""
    gamma, beta = (stack.weights[f"{layer.name}.{part}"][members, None] for part in ("weight", "bias"))
    scale = gamma * inverse_std
    return torch.addcmul((beta - mean * scale).unsqueeze(2), h, scale.unsqueeze(2))


@torch.no_grad()
def outputs(stack: Stack, x: Tensor) -> Tensor:
    """Outputs (E, n, outputs) of rows (n, inputs) or (E, n, inputs)."""
    x = x.expand(len(stack), *x.shape[-2:])
    found = x.new_empty(*x.shape[:2], stack.widths[-1])
    for members, rows in pieces(stack, x.shape[1], 1):
        norm = by_running_statistics(stack, members)
        found[members, rows] = run(stack, members, x[members, None, rows], norm, unchanged)[:, 0]
    return found


def for_drawn_outputs(
    stack: Stack, draws: StackedDraws, x: Tensor, see: Callable[[slice, slice, Tensor], None]
) -> None:
    """Show `see` which networks, which rows, and all draws of their outputs, (draws, networks, rows, outputs)."""
    draws.require(stack)
    x = x.expand(len(stack), *x.shape[-2:])

    @torch.no_grad()
    def work(piece: tuple[slice, slice]) -> None:
        members, rows = piece
        inputs = x[members, None, rows]
        size = max(1, piece_size(stack) // (inputs.shape[0] * inputs.shape[2] * max(stack.widths)))
        parts = []
        for start in range(0, draws.draws, size):
            norm, drop = draws.changes(stack, members, rows, slice(start, min(start + size, draws.draws)))
            f = run(stack, members, inputs, norm, drop)
            parts.append(f.expand(f.shape[0], min(size, draws.draws - start), *f.shape[2:]))
        see(members, rows, torch.cat(parts, 1).transpose(0, 1))

    in_threads(work, list(pieces(stack, x.shape[1], draws.draws)), stack.device)


def pieces(stack: Stack, rows: int, draws: int) -> Iterator[tuple[slice, slice]]:
    """Networks and rows, as many as go together: all rows of several networks, or some rows of one."""
    room, per_row = piece_size(stack), max(stack.widths)
    members = max(1, min(len(stack), room // (rows * draws * per_row)))
    at_once = max(1, min(rows, room // per_row))
    for first in range(0, len(stack), members):
        for start in range(0, rows, at_once):
            yield slice(first, min(first + members, len(stack))), slice(start, min(start + at_once, rows))
