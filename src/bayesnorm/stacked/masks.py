"""Compute dropout masks of all networks of a stack from the seeds of the samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..network import State, seed_dropout
from .architecture import Drop
from .stack import Stack


class Masks:
    """Masks as functions of their seeds; networks with the same rate and seeds share theirs.

    Args:
        stack: The networks.
        states: Seeds by dropout layer, `name.seed`, (samples, E); negative if a network has no dropout there.
        consistent: Whether all rows of a sample share its masks.
    """

    def __init__(self, stack: Stack, states: State, consistent: bool) -> None:
        self.drops = [drop for drop in stack.drops if f"{drop.name}.seed" in states]
        self.consistent = consistent
        widths = {layer.name: width for layer, width in zip(stack.layers, stack.widths, strict=False)}
        like = stack.weights.flat
        self.seeds: dict[str, Tensor] = {}  # by layer, of each set of networks that share masks, (U, samples)
        self.rates: dict[str, list[float]] = {}  # by layer, of each set
        self.which: dict[str, Tensor] = {}  # by layer, the set that each network is in, (E,)
        self.shared: dict[str, Tensor] = {}  # by layer, the masks of all rows, (U, samples, 1, units)
        for drop in self.drops:
            seeds, rates = states[f"{drop.name}.seed"].cpu(), stack.rates[drop.name]
            which, first = _alike(seeds, rates)
            self.seeds[drop.name] = seeds[:, first].T.contiguous().to(like.device)
            self.rates[drop.name] = rates[first].tolist()
            self.which[drop.name] = which
            if consistent:
                one_row = like.new_ones(1, widths[drop.name])
                found = [_masks(*pair, one_row, None) for pair in self._sets(drop.name)]
                self.shared[drop.name] = torch.stack(found)

    def _sets(self, name: str) -> list[tuple[float, Tensor]]:
        return list(zip(self.rates[name], self.seeds[name], strict=True))

    def of_networks(self, name: str, members: slice) -> Tensor:
        """Return the masks that all rows of some networks share, (networks, samples, 1, units)."""
        return self.shared[name][self.which[name][members].to(self.shared[name].device)]

    def thinning(self, members: slice, rows: slice, samples: slice) -> Callable[[Drop, Tensor], Tensor]:
        """Return a function that applies the dropout layers of some networks to some rows, under some samples."""

        def drop(layer: Drop, h: Tensor) -> Tensor:
            if layer.name not in self.seeds:
                return h
            if self.consistent:
                return h * self.of_networks(layer.name, members)[:, samples]
            used, inverse = self.which[layer.name][members].unique(return_inverse=True)
            ones, sets = h.new_ones(h.shape[2:]), self._sets(layer.name)
            found = [_masks(sets[u][0], sets[u][1][samples], ones, rows.start) for u in used.tolist()]
            return h * torch.stack(found)[inverse.to(h.device)]

        return drop


def _alike(seeds: Tensor, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Group networks with the same seeds (samples, E) and rate (E,): the set of each, and a member of each set."""
    # Usually the first sample is enough to separate the sets; comparing all samples of all networks would take long.
    keys = torch.stack([seeds[0], rates.double().contiguous().view(torch.int64)])
    _, which = keys.unique(dim=1, return_inverse=True)
    first = torch.full((int(which.max()) + 1,), len(rates)).scatter_reduce(0, which, torch.arange(len(rates)), "amin")
    if torch.equal(seeds, seeds[:, first[which]]):
        return which, first
    return torch.arange(len(rates)), torch.arange(len(rates))


def _masks(rate: float, seeds: Tensor, ones: Tensor, first_row: int | None) -> Tensor:
    """Return the factors of a seeded dropout layer, (samples, rows, units); without first row, equal for all rows."""
    carrier = nn.Sequential(nn.Dropout(rate)).eval()
    layer = seed_dropout(carrier, {"0": rate}, first_row is None, {}, ones.device)["0"]
    layer.first_row = first_row or 0
    return vmap(lambda seed: functional_call(carrier, {"0.seed": seed}, (ones,)))(seeds)
