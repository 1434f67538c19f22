"""Draws of batch statistics and of dropout masks for all networks of a stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..arguments import require_seed, require_whole
from ..errors import BayesNormError, InputError, NetworkError
from ..network import SEEDS, BatchNormLayer, seed_dropout
from ..posterior import Center, coordinates, require_draws
from .architecture import Dense, Drop, Norm
from .cores import in_threads
from .fused.passes import statistics as fused_statistics
from .passes import Normalise, Thin, by_running_statistics, normalised, piece_size, run, unchanged

if TYPE_CHECKING:
    from .rows import StackedRows
    from .stack import Stack


class StackedDraws(Protocol):
    """Random states of all networks of a stack, which `Stack.predict_under` runs them under."""

    @property
    def draws(self) -> int:
        """How many there are of each network."""

    def require(self, stack: Stack) -> None:
        """Refuse a stack that they are not for."""

    def changes(self, stack: Stack, members: slice, rows: slice, draws: slice) -> tuple[Normalise, Thin]:
        """What batch norm and dropout do to some rows in some networks, under some of the draws."""

    def scales(self, stack: Stack, members: slice) -> tuple[Tensor | None, list[Tensor]] | None:
        """All draws as factors of the inputs, (networks, draws, inputs) or None where there are none, and as scale and
        shift of what each ReLU of some networks gets, (networks, draws, channels); None if rows differ in them."""


@dataclass(frozen=True, eq=False)
class StackedStatistics:
    """Statistics of S mini-batches in the coordinates of `BatchNormPosterior`: means, then log(variance + eps).

    Args:
        layers: The batch-norm layers.
        running: The networks' own running statistics, (E, 2C).
        batch_mean: Mean of the batch statistics, (E, 2C).
        deviations: The batches' deviations from it, (S, E, 2C).
        fitted_batch_size: M, rows per batch.
        batch_size: M', the effective batch size of draws, (E,).
        center: "running" (draws about the networks' own running statistics) or "batch" (as published).
    """

    layers: tuple[Norm, ...]
    running: Tensor
    batch_mean: Tensor
    deviations: Tensor
    fitted_batch_size: int
    batch_size: Tensor
    center: Center = "running"

    @property
    def draws(self) -> int:
        return len(self.deviations)

    def about(self, center: Center) -> Self:
        """The same batches about another centre."""
        if center not in ("running", "batch"):
            raise BayesNormError(f'center: {center!r} was given; "running" or "batch" would work.')
        return replace(self, center=center)

    def at_batch_size(self, batch_size: float | Sequence[float] | Tensor) -> Self:
        """Another effective batch size M', one for all networks or one for each: deviations times sqrt(M / M')."""
        try:
            sizes = torch.as_tensor(batch_size, dtype=torch.float64).cpu()
        except (TypeError, ValueError):
            sizes = torch.zeros(())
        if sizes.dim() > 1 or sizes.numel() not in (1, len(self.running)) or not bool((sizes > 0).all()):
            raise BayesNormError(
                f"batch_size: {batch_size!r} was given; a positive number, or one for each of {len(self.running)} "
                "networks, would work."
            )
        return replace(self, batch_size=sizes.expand(len(self.running)))

    def with_deviations(self, deviations: Tensor) -> Self:
        """Other deviations from the centre, at the batch size that these belong to, (draws, E, 2C)."""
        if deviations.shape[1:] != self.deviations.shape[1:]:
            raise InputError(
                f"deviations: have shape {tuple(deviations.shape)}; (draws, {', '.join(map(str, self.running.shape))}) "
                "would work."
            )
        return replace(self, deviations=deviations)

    def coordinates(self, members: slice = slice(None), draws: slice = slice(None)) -> Tensor:
        """Some networks' draws, (networks, draws, 2C)."""
        spread = (self.fitted_batch_size / self.batch_size[members]).sqrt().to(self.deviations)
        centre = (self.running if self.center == "running" else self.batch_mean)[members]
        return torch.addcmul(centre[:, None], self.deviations[draws, members].transpose(0, 1), spread[:, None, None])

    def require(self, stack: Stack) -> None:
        if len(stack) != len(self.running) or stack.norms != self.layers:
            raise InputError(
                f"draws: are for {len(self.running)} other networks; stack.batch_statistics would make some."
            )

    def changes(self, stack: Stack, members: slice, rows: slice, draws: slice) -> tuple[Normalise, Thin]:
        mean, log_var = self.coordinates(members, draws).chunk(2, -1)
        sizes = [layer.channels for layer in self.layers]
        parts = zip(self.layers, mean.split(sizes, -1), torch.exp(-0.5 * log_var).split(sizes, -1), strict=True)
        found = {layer.name: (m, inverse_std) for layer, m, inverse_std in parts}

        def normalise(layer: Norm, h: Tensor) -> Tensor:
            return normalised(stack, members, layer, h, *found[layer.name])

        return normalise, unchanged

    def scales(self, stack: Stack, members: slice) -> tuple[Tensor | None, list[Tensor]] | None:
        mean, log_var = self.coordinates(members).chunk(2, -1)
        sizes = [layer.channels for layer in self.layers]
        found: list[Tensor] = []
        for layer, m, inverse_std in zip(
            self.layers, mean.split(sizes, -1), torch.exp(-0.5 * log_var).split(sizes, -1), strict=True
        ):
            gamma, beta = (stack.weights[f"{layer.name}.{part}"][members, None] for part in ("weight", "bias"))
            scale = gamma * inverse_std
            found += [scale, beta - m * scale]
        return None, found


@torch.no_grad()
def batch_statistics(
    stack: Stack, rows: StackedRows, batch_size: int, states: int, seed: int | Sequence[int]
) -> StackedStatistics:
    """See `Stack.batch_statistics`."""
    if not stack.norms:
        raise NetworkError("stack: its networks have no batch norm, so batches have no statistics in them.")
    words = "; a whole number from 2 would work."
    batch_size = require_whole("batch_size", batch_size, 2, words=words, error=InputError)
    states = require_whole("states", states, 2, words=words, error=InputError)
    least = int(rows.lengths.min())
    if batch_size >= least:
        raise InputError(
            f"batch_size: {batch_size} of only {least} training rows: every batch would hold the same rows, and all "
            f"draws would agree. At most {least - 1} works."
        )
    picked, which = batches_of(per_network(seed, len(stack)), rows.lengths.tolist(), batch_size, states)
    picked = picked.to(stack.device)
    layers = tuple(BatchNormLayer(norm.name, norm.channels, norm.eps) for norm in stack.norms)
    room = max(1, piece_size(stack) // (states * batch_size * max(stack.widths)))
    parts = [slice(first, min(first + room, len(stack))) for first in range(0, len(stack), room)]
    found = fused_statistics(stack, rows, picked, which, batch_size)
    if found is None:
        pieces = in_threads(
            lambda part: _statistics(stack, part, rows, picked[which[part]], batch_size), parts, stack.device
        )
        means, variances = zip(*pieces, strict=True)
        found = torch.cat(means), torch.cat(variances)
    mean, var = (part.transpose(0, 1) for part in found)
    drawn = coordinates(mean, var, layers)
    if not torch.isfinite(drawn).all():
        bad = (~torch.isfinite(drawn)).any(2).any(0).nonzero().flatten().tolist()
        raise NetworkError(f"stack: statistics of networks {bad[:8]} are NaN or infinite; look at their weights.")
    running_mean, running_var = (
        torch.cat([stack.buffers[f"{norm.name}.running_{part}"] for norm in stack.norms], 1) for part in ("mean", "var")
    )
    batch_mean = drawn.double().mean(0).to(drawn.dtype)
    return StackedStatistics(
        layers=stack.norms,
        running=coordinates(running_mean, running_var, layers),
        batch_mean=batch_mean,
        deviations=drawn - batch_mean,
        fitted_batch_size=batch_size,
        batch_size=torch.full((len(stack),), float(batch_size), dtype=torch.float64),
    )


@torch.no_grad()
def _statistics(
    stack: Stack, members: slice, rows: StackedRows, picked: Tensor, batch_size: int
) -> tuple[Tensor, Tensor]:
    """Means and biased variances of batches of rows picked (networks, S, M), each (networks, S, C)."""
    chosen = rows.take(torch.arange(members.start, members.stop))
    numbers = chosen.table.gather(1, picked.flatten(1))
    size = max(1, piece_size(stack) // (len(picked) * batch_size * max(stack.widths))) * batch_size
    found: list[tuple[Tensor, Tensor]] = []
    for part in numbers.split(size, 1):
        statistics: list[tuple[Tensor, Tensor]] = []

        def normalise(layer: Norm, h: Tensor, kept: list[tuple[Tensor, Tensor]] = statistics) -> Tensor:
            mean = h.mean(2, keepdim=True)
            var = (h - mean).square().mean(2)
            kept.append((mean.squeeze(2), var))
            return normalised(stack, members, layer, h, mean.squeeze(2), torch.rsqrt(var + layer.eps))

        x = chosen.inputs(part)
        run(stack, members, x.view(len(picked), -1, batch_size, x.shape[-1]), normalise, unchanged)
        means, variances = zip(*statistics, strict=True)
        found.append((torch.cat(means, 2), torch.cat(variances, 2)))
    means, variances = zip(*found, strict=True)
    return torch.cat(means, 1), torch.cat(variances, 1)


def batches_of(seeds: list[int], lengths: list[int], batch_size: int, count: int) -> tuple[Tensor, Tensor]:
    """Different choices of batches among a network's rows, (U, count, batch_size), and which of them each has, (E,)."""
    keys = list(zip(seeds, lengths, strict=True))
    different = list(dict.fromkeys(keys))
    place = {key: i for i, key in enumerate(different)}
    return _picked(tuple(different), batch_size, count), torch.tensor([place[key] for key in keys])


@lru_cache(maxsize=8)
def _picked(keys: tuple[tuple[int, int], ...], batch_size: int, count: int) -> Tensor:
    """Kept, because networks in training are asked again and again for statistics of the same batches."""
    found = []
    for seed, rows in keys:
        generator = np.random.default_rng(seed)  # the calls of `MiniBatches`
        found.append(np.stack([generator.choice(rows, batch_size, replace=False) for _ in range(count)]))
    return torch.from_numpy(np.stack(found))


def per_network(seed: int | Sequence[int], networks: int) -> list[int]:
    """A seed for every network."""
    try:
        given = [*seed]  # type: ignore[misc]
    except TypeError:  # one number, or a tensor that holds one, which is refused as everywhere
        return [require_seed(seed)] * networks
    if len(given) != networks:
        raise BayesNormError(
            f"seed: {len(given)} were given for {networks} networks; one, or one for each, would work."
        )
    return [require_seed(each.item() if isinstance(each, Tensor) else each) for each in given]


@dataclass(frozen=True, eq=False)
class StackedMasks:
    """Seeds of dropout masks, which are functions of them; networks of the same rates and seed share theirs.

    Args:
        draws: T.
        rates: By dropout layer, of each set of networks that share masks, (U,).
        seeds: By dropout layer, of the masks, (U, T); negative where a layer drops nothing.
        which: The set that each network is in, (E,).
        masks: By dropout layer, for all rows, (U, T, 1, units); None where every row has masks of its own.
    """

    draws: int
    rates: dict[str, list[float]]
    seeds: dict[str, Tensor]
    which: Tensor
    masks: dict[str, Tensor] | None

    def require(self, stack: Stack) -> None:
        if len(stack) != len(self.which) or stack.rates.keys() != self.rates.keys():
            raise InputError(f"draws: are for {len(self.which)} other networks; stack.dropout_masks would make some.")

    def changes(self, stack: Stack, members: slice, rows: slice, draws: slice) -> tuple[Normalise, Thin]:
        which = self.which[members]
        sets, inverse = which.unique(return_inverse=True)

        def drop(layer: Drop, h: Tensor) -> Tensor:
            if self.masks is not None:
                return h * self.masks[layer.name][which.to(h.device), draws]
            ones = h.new_ones(h.shape[2:])
            rates, seeds = self.rates[layer.name], self.seeds[layer.name]
            found = [_masks(rates[u], seeds[u, draws], ones, rows.start) for u in sets.tolist()]
            return h * torch.stack(found)[inverse.to(h.device)]

        return by_running_statistics(stack, members), drop

    def scales(self, stack: Stack, members: slice) -> tuple[Tensor | None, list[Tensor]] | None:
        if self.masks is None or stack.norms:
            return None
        which = self.which[members].to(stack.device)
        inputs, *hidden = (self.masks[drop.name][which].squeeze(2) for drop in stack.drops)
        dense = [layer.name for layer in stack.layers if isinstance(layer, Dense)]
        found: list[Tensor] = []
        for mask, name in zip(hidden, dense, strict=False):  # max(a + b, 0) * mask = max(a * mask + b * mask, 0)
            found += [mask, mask * stack.weights[f"{name}.bias"][members, None]]
        return inputs, found


@torch.no_grad()
def dropout_masks(stack: Stack, draws: int, seed: int | Sequence[int], consistent: bool) -> StackedMasks:
    """See `Stack.dropout_masks`."""
    names = [drop.name for drop in stack.drops]
    if not names:
        raise NetworkError("stack: its networks have no nn.Dropout, so there are no masks to draw.")
    draws = require_draws(draws)
    all_rates = torch.stack([stack.rates[name] for name in names], 1).tolist()
    keys = [(own, tuple(rates)) for own, rates in zip(per_network(seed, len(stack)), all_rates, strict=True)]
    different = list(dict.fromkeys(keys))
    place = {key: i for i, key in enumerate(different)}
    seeds = torch.full((len(names), len(different), draws), -1)
    for i, (own, rates) in enumerate(different):
        on = [column for column, rate in enumerate(rates) if rate > 0]
        generator = torch.Generator().manual_seed(own)
        seeds[on, i] = torch.randint(SEEDS, (draws, len(on)), generator=generator).T  # the calls of `DropoutPosterior`
    found = StackedMasks(
        draws=draws,
        rates={name: [rates[column] for _, rates in different] for column, name in enumerate(names)},
        seeds={name: column.to(stack.device) for name, column in zip(names, seeds, strict=True)},
        which=torch.tensor([place[key] for key in keys]),
        masks=None,
    )
    if not consistent:
        return found
    units = {drop.name: width for drop, width in zip(stack.layers, stack.widths, strict=False)}
    masks = {
        name: torch.stack(
            [
                _masks(rate, column, stack.weights.flat.new_ones(1, units[name]), None)
                for rate, column in zip(found.rates[name], found.seeds[name], strict=True)
            ]
        )
        for name in names
    }
    return replace(found, masks=masks)


def _masks(rate: float, seeds: Tensor, ones: Tensor, first_row: int | None) -> Tensor:
    """What a seeded dropout layer multiplies its input by, (draws, rows, units); no first row: the same for all."""
    carrier = nn.Sequential(nn.Dropout(rate)).eval()
    layer = seed_dropout(carrier, {"0": rate}, first_row is None, {}, ones.device)["0"]
    layer.first_row = first_row or 0
    return vmap(lambda seed: functional_call(carrier, {"0.seed": seed}, (ones,)))(seeds)
