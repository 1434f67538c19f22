"""Run rows through all networks of a stack, with their own statistics or under sampled states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from ..network import State
from .architecture import Dense, Drop, Fork, Join, Norm
from .cores import in_threads
from .masks import Masks
from .stack import Stack

# Most numbers in the largest activation of a block: what fits into a core's cache, or half a gigabyte.
PIECE = {"cpu": 2**18, "cuda": 2**26}

Normalise = Callable[[Norm, Tensor], Tensor]
"""Applies a batch-norm layer to its input h, (networks, samples, rows, channels)."""

Thin = Callable[[Drop, Tensor], Tensor]
"""Applies a dropout layer to its input."""


def piece_size(stack: Stack) -> int:
    """Return the most numbers that the largest activation of a block may hold."""
    return PIECE.get(stack.device.type, PIECE["cpu"])


def run_layers(stack: Stack, members: slice, h: Tensor, norm: Normalise, drop: Thin) -> Tensor:
    """Return the outputs of some of the networks for h, (networks, samples, rows, inputs)."""
    around: list[Tensor] = []
    for layer in stack.layers:
        if isinstance(layer, Fork):
            around.append(h)
        elif isinstance(layer, Join):
            h = h + around.pop()
        elif isinstance(layer, Dense):
            networks, samples, rows, inputs = h.shape
            weight = stack.weights[f"{layer.name}.weight"][members].mT
            h = h.reshape(networks, samples * rows, inputs)
            if layer.bias:
                h = torch.baddbmm(stack.weights[f"{layer.name}.bias"][members].unsqueeze(1), h, weight)
            else:
                h = torch.bmm(h, weight)
            h = h.view(networks, samples, rows, layer.outputs)
        elif isinstance(layer, Norm):
            h = norm(layer, h)
        elif isinstance(layer, Drop):
            h = drop(layer, h)
        else:
            h = layer.module(h)
    return h


def unchanged(_layer: Any, h: Tensor) -> Tensor:
    """Return h unchanged, as a dropout layer does in evaluation mode."""
    return h


def normalised(stack: Stack, members: slice, layer: Norm, h: Tensor, mean: Tensor, inverse_std: Tensor) -> Tensor:
    """Return h normalised with statistics (networks, samples, channels), with the layer's learned scale and shift."""
    gamma, beta = (stack.weights[f"{layer.name}.{part}"][members, None] for part in ("weight", "bias"))
    scale = gamma * inverse_std
    return torch.addcmul((beta - mean * scale).unsqueeze(2), h, scale.unsqueeze(2))


def by_states(stack: Stack, states: State, members: slice, samples: slice) -> Normalise:
    """Return a function that normalises by sampled statistics, (samples, E, channels), or by the networks' own."""

    def normalise(layer: Norm, h: Tensor) -> Tensor:
        names = [f"{layer.name}.running_{part}" for part in ("mean", "var")]
        if names[0] in states:
            mean, var = (states[name][samples, members].transpose(0, 1) for name in names)
        else:
            mean, var = (stack.buffers[name][members, None] for name in names)
        return normalised(stack, members, layer, h, mean, torch.rsqrt(var + layer.eps))

    return normalise


@torch.no_grad()
def stacked_outputs(stack: Stack, x: Any) -> Tensor:
    """Return the outputs of all networks in evaluation mode, (E, n, outputs), in the networks' own units.

    Args:
        stack: The networks.
        x: (n, inputs) for all networks, (E, n, inputs), or `StackedRows`, padded to the longest list of rows.
    """
    x = stack.inputs(x)
    x = x.expand(len(stack), *x.shape[-2:])
    found = x.new_empty(*x.shape[:2], stack.widths[-1])
    for members, rows in pieces(stack, x.shape[1], 1):
        norm = by_states(stack, {}, members, slice(None))
        found[members, rows] = run_layers(stack, members, x[members, None, rows], norm, unchanged)[:, 0]
    return found


def for_drawn_outputs(
    stack: Stack, states: State, masks: Masks | None, x: Tensor, see: Callable[[slice, slice, Tensor], None]
) -> None:
    """Call `see` with networks, rows, and all samples of their outputs, (samples, networks, rows, outputs)."""
    x = x.expand(len(stack), *x.shape[-2:])
    count = len(next(iter(states.values())))

    @torch.no_grad()
    def work(piece: tuple[slice, slice]) -> None:
        members, rows = piece
        inputs = x[members, None, rows]
        size = max(1, piece_size(stack) // (inputs.shape[0] * inputs.shape[2] * max(stack.widths)))
        parts = []
        for start in range(0, count, size):
            samples = slice(start, min(start + size, count))
            drop = unchanged if masks is None else masks.thinning(members, rows, samples)
            f = run_layers(stack, members, inputs, by_states(stack, states, members, samples), drop)
            parts.append(f.expand(f.shape[0], samples.stop - samples.start, *f.shape[2:]))
        see(members, rows, torch.cat(parts, 1).transpose(0, 1))

    in_threads(work, list(pieces(stack, x.shape[1], count)), stack.device)


def pieces(stack: Stack, rows: int, samples: int) -> Iterator[tuple[slice, slice]]:
    """Yield networks and rows of a block: all rows of several networks, or some rows of one."""
    at_once = max(1, min(rows, piece_size(stack) // max(stack.widths)))
    for members in network_slices(stack, rows * samples):
        for start in range(0, rows, at_once):
            yield members, slice(start, min(start + at_once, rows))


def network_slices(stack: Stack, rows: int) -> list[slice]:
    """Split the networks so that a block holds `rows` rows of each of its networks."""
    room = max(1, min(len(stack), piece_size(stack) // (rows * max(stack.widths))))
    return [slice(first, min(first + room, len(stack))) for first in range(0, len(stack), room)]
