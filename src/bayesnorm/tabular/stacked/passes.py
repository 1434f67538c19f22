"""Run rows through all networks of a stack: with their own statistics, under sampled states, or to compute statistics.

Statistics of training batches have the form that methods are fitted with (`network.BatchStatistics`), with an axis of
networks before that of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ...network import BatchNormLayer, BatchStatistics, State, batch_choices, mean_and_var, seed_dropout
from .architecture import Dense, Drop, Fork, Join, Norm
from .stack import Stack, StackedRows, different
from .threads import in_threads

# Most numbers in the largest activation of a block: what fits into a core's cache, or half a gigabyte.
BLOCK_NUMBERS = {"cpu": 2**18, "cuda": 2**26}

Normalise = Callable[[Norm, Tensor], Tensor]
"""Applies a batch-norm layer to its input h, (networks, samples, rows, channels)."""

Thin = Callable[[Drop, Tensor], Tensor]
"""Applies a dropout layer to its input."""


class StackedExecutable:
    """E networks that are run together under sampled states, as `network.Executable` runs one network.

    Args:
        stack: The networks.
        scale: Factor of each network's outputs, (E, outputs).
        shift: Added afterwards, (E, outputs). Both convert outputs to the targets' units.
    """

    def __init__(self, stack: Stack, scale: Tensor, shift: Tensor) -> None:
        self.stack = stack
        # In double precision: a target's units may be far from those of the network.
        self.scale, self.shift = (part.to(stack.device, torch.float64)[:, None] for part in (scale, shift))

    @property
    def device(self) -> torch.device:
        """Return the device of the networks."""
        return self.stack.device

    def point(self, rows: StackedRows) -> Tensor:
        """Return the networks' outputs in evaluation mode, (E, n, outputs), in the targets' units."""
        return stacked_outputs(self.stack, rows).double() * self.scale + self.shift

    def run(self, states: State, rows: StackedRows) -> Tensor:
        """Return outputs under each state, (samples, E, n, outputs), in the targets' units.

        Args:
            states: Statistics of batch norm, `name.running_mean` and `name.running_var`, (samples, E, channels), or
                seeds of dropout, `name.seed`, (samples,).
            rows: The rows of each network.
        """
        values = self.stack.inputs(rows)
        count = len(next(iter(states.values())))
        f = values.new_empty(count, len(self.stack), values.shape[-2], self.stack.widths[-1])

        def store(members: slice, numbers: slice, part: Tensor) -> None:
            f[:, members, numbers] = part

        run_blocks(self.stack, states, values, store)
        return f.double() * self.scale + self.shift


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
            h = torch.relu(h)
    return h


def without_dropout(_layer: Drop, h: Tensor) -> Tensor:
    """Return h unchanged, as a dropout layer does in evaluation mode."""
    return h


def normalised(stack: Stack, members: slice, layer: Norm, h: Tensor, mean: Tensor, inverse_std: Tensor) -> Tensor:
    """Return h normalised with statistics (networks, samples, channels), with the layer's learned scale and shift."""
    gamma, beta = (stack.weights[f"{layer.name}.{part}"][members, None] for part in ("weight", "bias"))
    scale = gamma * inverse_std
    return torch.addcmul((beta - mean * scale).unsqueeze(2), h, scale.unsqueeze(2))


def _by_states(stack: Stack, states: State, members: slice, samples: slice) -> Normalise:
    """Return a function that normalises by sampled statistics, (samples, E, channels), or by the networks' own."""

    def normalise(layer: Norm, h: Tensor) -> Tensor:
        names = [f"{layer.name}.running_{part}" for part in ("mean", "var")]
        if names[0] in states:
            mean, var = (states[name][samples, members].transpose(0, 1) for name in names)
        else:
            mean, var = (stack.buffers[name][members, None] for name in names)
        return normalised(stack, members, layer, h, mean, torch.rsqrt(var + layer.eps))

    return normalise


def dropout_masks(stack: Stack, states: State) -> dict[str, Tensor]:
    """Return the factors of dropout layers by name, (samples, 1, units), which all networks and rows share.

    The networks must have the same rates.
    """
    masks = {}
    for layer, width in zip(stack.layers, stack.widths, strict=False):
        if f"{layer.name}.seed" in states:
            rate = float(stack.rates[layer.name][0])
            carrier = nn.Sequential(nn.Dropout(rate)).eval()
            seed_dropout(carrier, {"0": rate}, True, {}, stack.device)
            ones = stack.weights.flat.new_ones(1, width)

            def thin(seed: Tensor, carrier: nn.Module = carrier, ones: Tensor = ones) -> Tensor:
                return functional_call(carrier, {"0.seed": seed}, (ones,))

            masks[layer.name] = vmap(thin)(states[f"{layer.name}.seed"].to(stack.device))
    return masks


@torch.no_grad()
def stacked_outputs(stack: Stack, rows: StackedRows) -> Tensor:
    """Return the outputs of all networks in evaluation mode, (E, n, outputs), in the networks' own units."""
    x = stack.inputs(rows)
    f = x.new_empty(*x.shape[:2], stack.widths[-1])
    for members, part in blocks(stack, x.shape[1], 1):
        norm = _by_states(stack, {}, members, slice(None))
        f[members, part] = run_layers(stack, members, x[members, None, part], norm, without_dropout)[:, 0]
    return f


def run_blocks(stack: Stack, states: State, x: Tensor, use: Callable[[slice, slice, Tensor], None]) -> None:
    """Call `use` with networks, rows, and all samples of their outputs, (samples, networks, rows, outputs).

    Args:
        stack: The networks.
        states: See `StackedExecutable.run`.
        x: Inputs in the networks' units, (E, n, inputs).
        use: The function, which is called in several threads.
    """
    count, masks = len(next(iter(states.values()))), dropout_masks(stack, states)

    @torch.no_grad()
    def work(block: tuple[slice, slice]) -> None:
        members, rows = block
        inputs = x[members, None, rows]
        size = max(1, block_numbers(stack) // (inputs.shape[0] * inputs.shape[2] * max(stack.widths)))
        parts = []
        for start in range(0, count, size):
            samples = slice(start, min(start + size, count))

            def drop(layer: Drop, h: Tensor, samples: slice = samples) -> Tensor:
                return h * masks[layer.name][samples] if layer.name in masks else h

            f = run_layers(stack, members, inputs, _by_states(stack, states, members, samples), drop)
            parts.append(f.expand(f.shape[0], samples.stop - samples.start, *f.shape[2:]))
        use(members, rows, torch.cat(parts, 1).transpose(0, 1))

    in_threads(work, list(blocks(stack, x.shape[1], count)), stack.device)


def blocks(stack: Stack, rows: int, samples: int) -> Iterator[tuple[slice, slice]]:
    """Yield networks and rows of a block: all rows of several networks, or some rows of one."""
    at_once = max(1, min(rows, block_numbers(stack) // max(stack.widths)))
    for members in network_slices(stack, rows * samples):
        for start in range(0, rows, at_once):
            yield members, slice(start, min(start + at_once, rows))


def network_slices(stack: Stack, rows: int) -> list[slice]:
    """Split the networks so that a block holds `rows` rows of each of its networks."""
    room = max(1, min(len(stack), block_numbers(stack) // (rows * max(stack.widths))))
    return [slice(first, min(first + room, len(stack))) for first in range(0, len(stack), room)]


def block_numbers(stack: Stack) -> int:
    """Return the most numbers that the largest activation of a block may hold."""
    return BLOCK_NUMBERS.get(stack.device.type, BLOCK_NUMBERS["cpu"])


@torch.no_grad()
def stacked_statistics(
    stack: Stack, rows: StackedRows, batch_size: int, states: int, seeds: Sequence[int]
) -> BatchStatistics:
    """Return the statistics of random mini-batches of each network's rows, all layers in one forward pass: (S, E, C).

    The batches equal those of a method's `fit` for one of the networks with the same seed.

    Args:
        stack: The networks.
        rows: Their training rows.
        batch_size: M, rows per batch; less than the rows of any network.
        states: S, the number of batches.
        seeds: The seed of each network.
    """
    rows = rows.to(stack.device, stack.dtype)
    picked, which = batch_rows(seeds, rows, batch_size, states)
    picked = picked.to(stack.device)
    parts = in_threads(
        lambda part: _statistics_of(stack, part, rows, picked[which[part]], batch_size),
        network_slices(stack, states * batch_size),
        stack.device,
    )
    mean, var = (torch.cat(part).transpose(0, 1) for part in zip(*parts, strict=True))
    return as_batch_statistics(stack, rows, mean, var, batch_size)


def as_batch_statistics(stack: Stack, rows: StackedRows, mean: Tensor, var: Tensor, batch_size: int) -> BatchStatistics:
    """Return means and variances of batches, (S, E, C), with what methods need to know of the networks."""
    running_mean, running_var = (
        torch.cat([stack.buffers[f"{norm.name}.running_{part}"] for norm in stack.norms], 1) for part in ("mean", "var")
    )
    return BatchStatistics(
        layers=tuple(BatchNormLayer(norm.name, norm.channels, norm.eps) for norm in stack.norms),
        mean=mean,
        var=var,
        running_mean=running_mean,
        running_var=running_var,
        batch_size=batch_size,
        rows=int(rows.lengths.min()),
        example=rows.x[:0],
    )


def batch_rows(seeds: Sequence[int], rows: StackedRows, batch_size: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the different choices of batches, (U, count, batch_size), and the choice of each network, (E,)."""
    keys, choice_of = different(list(zip(seeds, rows.lengths.tolist(), strict=True)))
    return _choices(tuple(keys), batch_size, count), choice_of


@lru_cache(maxsize=8)
def _choices(keys: tuple[tuple[int, int], ...], batch_size: int, count: int) -> Tensor:
    """Return cached choices: networks in training need statistics of the same batches many times."""
    return torch.from_numpy(np.stack([batch_choices(rows, batch_size, count, seed) for seed, rows in keys]))


@torch.no_grad()
def _statistics_of(
    stack: Stack, members: slice, rows: StackedRows, picked: Tensor, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Return means and biased variances of batches of rows picked (networks, S, M), each (networks, S, C)."""
    chosen = rows.take(torch.arange(members.start, members.stop))
    numbers = chosen.table.gather(1, picked.flatten(1))
    size = max(1, block_numbers(stack) // (len(picked) * batch_size * max(stack.widths))) * batch_size
    blocks: list[tuple[Tensor, Tensor]] = []
    for part in numbers.split(size, 1):
        statistics: list[tuple[Tensor, Tensor]] = []

        def normalise(layer: Norm, h: Tensor, statistics: list[tuple[Tensor, Tensor]] = statistics) -> Tensor:
            mean, var = mean_and_var(h, leading=2)
            statistics.append((mean, var))
            return normalised(stack, members, layer, h, mean, torch.rsqrt(var + layer.eps))

        x = chosen.inputs(part)
        run_layers(stack, members, x.view(len(picked), -1, batch_size, x.shape[-1]), normalise, without_dropout)
        means, variances = zip(*statistics, strict=True)
        blocks.append((torch.cat(means, 2), torch.cat(variances, 2)))
    means, variances = zip(*blocks, strict=True)
    return torch.cat(means, 1), torch.cat(variances, 1)
