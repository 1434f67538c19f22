"""Remove the units that a posterior calls noise, and round the weights that stay to what it knows of them.

Scores are those of the group distributions: ln alpha for normal-Jeffreys, minus the logarithm of z's mode for the
horseshoe. Groups above a threshold go. The right threshold differs between layers, and the authors read it off
histograms. Given rows with targets, it is found here, layer by layer from the largest: as many of the noisiest groups
go as the loss of the mean network allows.

Running statistics of batch norm are those of training, with its noise. A channel that is noise is next to nothing in
the network of means, which such statistics leave as it is; new ones would blow it up to the size of all others. So
groups are tried with the statistics of training first, and with new ones, which suit fewer channels better, only once
the noise is gone and if they lower the loss.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import require_number, require_whole
from ..errors import BayesNormError
from ..network import (
    Executable,
    Removal,
    Units,
    own_copy,
    removed,
    renewed_statistics,
    tensors_of,
    trace_units,
)
from ..posterior import GroupWeights, VariationalPosterior
from .compressed import Compressed
from .measuring import losses
from .packing import Precision

# Steps between neighbouring values, as shares of the weights' standard deviations, which are tried in this order.
SHARES = (1.0, 0.5, 0.25, 0.125)


@torch.inference_mode(False)
@torch.no_grad()
def compress(
    posterior: VariationalPosterior,
    x: Any = None,
    y: Any = None,
    *,
    threshold: float | None = None,
    tolerance: float = 0.01,
    looks: int = 32,
) -> Compressed:
    """Return a smaller plain network: that of the posterior's means, without the units that it calls noise.

    Args:
        posterior: The posterior of `GroupNormalJeffreys` or `GroupHorseshoe`; it and its network are left as they are.
        x: Rows like those of training. On them statistics of batch norm are estimated anew (with `y` only if that
            lowers the loss), and with `y` thresholds and bits are chosen. The more rows, training ones included, the
            better what they allow holds for others.
        y: Their targets.
        threshold: Groups with a `log_noise()` above it are removed; None chooses by x and y, or without them takes the
            kind's own, 0 for normal-Jeffreys (as much noise as signal) and 1 for the horseshoe.
        tolerance: By how much the mean loss per row may rise by pruning, and again by rounding, where they are chosen.
        looks: How many groups of each layer are tried one by one, once a threshold is found, each of the two times that
            layers are gone through; fewer are faster.
    """
    groups = _groups(posterior)
    if threshold is not None:
        threshold = require_number("threshold", threshold)
    tolerance = require_number("tolerance", tolerance, least=0)
    looks = require_whole("looks", looks, 0)
    if y is not None and x is None:
        raise BayesNormError("x: None was given with y; the rows that these targets belong to would work.")
    units, (means, variances) = trace_units(posterior.model), _moments(posterior)
    network = _network_of(posterior, means)
    noise = {layer: own.log_noise().cpu() for layer, own in groups.items() if layer in units.read}  # looked at often
    if not noise:
        raise BayesNormError("posterior: none of its groups belongs to a layer that can be pruned.")
    rows = None if x is None else posterior.executable.input(x)
    score = _Score(posterior, rows, y) if y is not None else None
    if threshold is None and score is not None:
        removal = _chosen(groups, network, units, noise, score, tolerance, looks)
    else:
        limits = {layer: groups[layer].threshold if threshold is None else threshold for layer in noise}
        removal = _removal(groups, {layer: own > limits[layer] for layer, own in noise.items()})
    small = removed(network, units, removal)
    spread = removed(_network_of(posterior, variances), units, removal)
    renew = score is None or score.prefers_new(small)
    small, precisions = _rounded(small, spread, list(posterior.weights), score, tolerance, renew)
    if rows is not None and renew:
        small = renewed_statistics(small, rows)
    kept = _kept(units, removal)
    return Compressed(small, network, precisions, kept, posterior.likelihood, posterior.executable.output)


@dataclass(frozen=True)
class _Score:
    """The mean loss of networks on some rows, their batch statistics as they are or estimated on these."""

    posterior: VariationalPosterior
    x: Any
    y: Any

    def __call__(self, network: nn.Module, renew: bool = False) -> float:
        if renew:
            network = renewed_statistics(network, self.x)
        runner = Executable(network, self.posterior.executable.output)
        return losses(runner, self.posterior.likelihood, self.x, self.y)[0]

    def prefers_new(self, network: nn.Module) -> bool:
        """Tell whether new batch statistics lower the loss."""
        return self(network, True) < self(network)


def _groups(posterior: Any) -> dict[str, GroupWeights]:
    """Return group distributions by layer; refuse a posterior without."""
    weights = posterior.weights if isinstance(posterior, VariationalPosterior) else {}
    found = {name.rpartition(".")[0]: own for name, own in weights.items() if isinstance(own, GroupWeights)}
    if not found:
        raise BayesNormError(
            f"posterior: {getattr(posterior, 'method', type(posterior).__name__)} says nothing of whole units; one of "
            "GroupNormalJeffreys or GroupHorseshoe would work."
        )
    return found


def _moments(posterior: VariationalPosterior) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Means and variances of all weights, by name."""
    means, variances = {}, {}
    for name, own in posterior.weights.items():
        found = own.moments() if isinstance(own, GroupWeights) else (own.mean, own.std.square())
        means[name], variances[name] = found
    return means, variances


def _network_of(posterior: VariationalPosterior, weights: dict[str, Tensor]) -> nn.Module:
    """Return a network of the posterior's points, with these weights."""
    made = own_copy(posterior.model)
    tensors = tensors_of(made)
    for name, value in {**posterior.points, **weights}.items():
        tensors[name].copy_(value)
    return made


def _removal(groups: dict[str, GroupWeights], gone: dict[str, Tensor]) -> Removal:
    """Return the removal of groups, whose flags stand by layer."""
    silent = {layer: flags for layer, flags in gone.items() if groups[layer].axis == 0}
    return Removal(silent, {layer: flags for layer, flags in gone.items() if groups[layer].axis == 1})


def _chosen(
    groups: dict[str, GroupWeights],
    network: nn.Module,
    units: Units,
    noise: dict[str, Tensor],
    score: _Score,
    tolerance: float,
    looks: int,
) -> Removal:
    """Return the removal of as many groups as the loss allows.

    The largest layer comes first. Every layer may spend an equal share of the tolerance, and what those before it left;
    what is left in the end, all may spend once more. One group that matters, though noisy, would keep all that are less
    noisy: some of these are then tried one by one.
    """
    gone = {layer: torch.zeros_like(own, dtype=torch.bool) for layer, own in noise.items()}
    limit, renew = score(network), False

    def small(gone: dict[str, Tensor]) -> nn.Module:
        return removed(network, units, _removal(groups, gone))

    def works(layer: str, more: Tensor) -> bool:
        flags = gone[layer].clone()
        flags[more] = True
        return score(small(gone | {layer: flags}), renew) <= limit

    layers = sorted(noise, key=lambda name: -groups[name].mean.numel())
    for number, layer in enumerate(layers * 2):
        if number == len(layers):
            renew = score.prefers_new(small(gone))
        limit += tolerance / len(layers) if number < len(layers) else 0.0
        order = noise[layer].argsort(descending=True)
        order = order[~gone[layer][order]]
        low, high = 0, len(order) - 1  # how many go: `low` works, and one group stays
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if works(layer, order[:middle]) else (low, middle - 1)
        gone[layer][order[:low]] = True
        for group in order[low + 1 : low + 1 + looks]:
            if int((~gone[layer]).sum()) > 1 and works(layer, group):
                gone[layer][group] = True
    return _removal(groups, gone)


def _rounded(
    network: nn.Module, spread: nn.Module, names: list[str], score: _Score | None, tolerance: float, renew: bool
) -> tuple[nn.Module, dict[str, Precision]]:
    """Return a copy with rounded weights, and their precisions: the coarsest that the loss allows.

    Args:
        network: The network.
        spread: A network like it, whose weights are variances.
        names: The weights to round.
        score: The loss to look at; None takes the finest of `SHARES` but one.
        tolerance: By how much the loss may rise.
        renew: Whether batch statistics are estimated anew for every look.
    """
    limit = score(network, renew) + tolerance if score else 0.0
    for share in SHARES if score else SHARES[-2:-1]:
        made, precisions = own_copy(network), {}
        for name in names:
            value = made.get_parameter(name)
            precisions[name] = Precision.given(value, spread.get_parameter(name), share)
            value.copy_(precisions[name].rounded(value))
        if score is None or score(made, renew) <= limit:
            break
    return made, precisions


def _kept(units: Units, removal: Removal) -> dict[str, int]:
    """Count, by reason, units that all who write them leave silent and that are kept nevertheless."""
    wanted = removal.units(replace(units, kept={}, moved=set())) - removal.units(units)
    moved = "an activation makes something else of zero"
    return dict(Counter(units.kept.get(unit, moved) for unit in wanted))
