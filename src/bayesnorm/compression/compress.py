"""Remove the units that are noise under the posterior, and round the other weights to their posterior precision.

Every group of weights has a noise score: ln alpha for normal-Jeffreys, minus the logarithm of the mode of z for the
horseshoe. Groups above a threshold are removed. The best threshold differs between layers; the authors chose it from
histograms. Here it is chosen with labelled examples, from the largest layer to the smallest: the noisiest groups are
removed as long as the loss of the mean network allows.

The running statistics of batch norm come from training, with its noise. In the network of posterior means, a channel
that is noise has almost no signal. The training statistics keep it small; new statistics would scale it up to the size
of the other channels. So groups are first tried with the statistics of training. New statistics, which fit fewer
channels better, are used only after the noise is removed, and only if they lower the loss.
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
from .compressed import Compressed, Precision
from .report import losses

# Rounding steps as shares of the weights' standard deviations, in the order in which they are tried.
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
    """Return a smaller network: the posterior means, without the units that are noise under the posterior.

    Args:
        posterior: The posterior of `GroupNormalJeffreys` or `GroupHorseshoe`; it and its network are not modified.
        x: Training examples, or others like them. They give new batch statistics; with `y`, these are used only if
            they lower the loss. With `y`, they also choose thresholds and bits: more examples generalise better.
        y: Their targets.
        threshold: Groups with a `log_noise()` above it are removed. [default: chosen with x and y; without y, 0 for
            normal-Jeffreys (as much noise as signal) and 1 for the horseshoe]
        tolerance: The largest increase of the mean loss per example by pruning, and again by rounding, if they are
            chosen with x and y.
        looks: After a layer's threshold is chosen, the number of further groups that are tried one by one. All layers
            are tried twice. Fewer is faster.
    """
    groups = _groups(posterior)
    if threshold is not None:
        threshold = require_number("threshold", threshold)
    tolerance = require_number("tolerance", tolerance, least=0)
    looks = require_whole("looks", looks, 0)
    if y is not None and x is None:
        raise BayesNormError("x is None, but y is given. Pass the inputs that belong to these targets.")
    units, (means, variances) = trace_units(posterior.model), _moments(posterior)
    network = _network_of(posterior, means)
    noise = {
        layer: group.log_noise().cpu() for layer, group in groups.items() if layer in units.read
    }  # on the CPU, as they are read often
    if not noise:
        raise BayesNormError("posterior has no group that belongs to a layer that can be pruned.")
    rows = None if x is None else posterior.executable.input(x)
    score = _Score(posterior, rows, y) if y is not None else None
    if threshold is None and score is not None:
        removal = _chosen(groups, network, units, noise, score, tolerance, looks)
    else:
        limits = {layer: groups[layer].threshold if threshold is None else threshold for layer in noise}
        removal = _removal(groups, {layer: scores > limits[layer] for layer, scores in noise.items()})
    small = removed(network, units, removal)
    spread = removed(_network_of(posterior, variances), units, removal)
    renew = score is None or score.prefers_new(small)
    small, precisions = _rounded(small, spread, list(posterior.weights), score, tolerance, renew)
    if rows is not None and renew:
        small = renewed_statistics(small, rows)
    unremovable = _count_unremovable(units, removal)
    return Compressed(small, network, precisions, unremovable, posterior.likelihood, posterior.executable.output)


@dataclass(frozen=True)
class _Score:
    """The mean loss of networks on some examples, with their batch statistics or with new ones from these examples."""

    posterior: VariationalPosterior
    x: Any
    y: Any

    def __call__(self, network: nn.Module, renew: bool = False) -> float:
        if renew:
            network = renewed_statistics(network, self.x)
        runner = Executable(network, self.posterior.executable.output)
        return losses(runner, self.posterior.likelihood, self.x, self.y)[0]

    def prefers_new(self, network: nn.Module) -> bool:
        """Return whether new batch statistics lower the loss."""
        return self(network, True) < self(network)


def _groups(posterior: Any) -> dict[str, GroupWeights]:
    """Return group distributions by layer, or raise an error if the posterior has none."""
    weights = posterior.weights if isinstance(posterior, VariationalPosterior) else {}
    groups = {name.rpartition(".")[0]: weight for name, weight in weights.items() if isinstance(weight, GroupWeights)}
    if not groups:
        raise BayesNormError(
            f"posterior of {getattr(posterior, 'method', type(posterior).__name__)} has no group distributions, which "
            "compress needs. Use GroupNormalJeffreys or GroupHorseshoe."
        )
    return groups


def _moments(posterior: VariationalPosterior) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the means and variances of all weights, by name."""
    means, variances = {}, {}
    for name, weight in posterior.weights.items():
        moments = weight.moments() if isinstance(weight, GroupWeights) else (weight.mean, weight.std.square())
        means[name], variances[name] = moments
    return means, variances


def _network_of(posterior: VariationalPosterior, weights: dict[str, Tensor]) -> nn.Module:
    """Return a network with these weights, and the posterior's values of all other parameters."""
    made = own_copy(posterior.model)
    tensors = tensors_of(made)
    for name, value in {**posterior.points, **weights}.items():
        tensors[name].copy_(value)
    return made


def _removal(groups: dict[str, GroupWeights], gone: dict[str, Tensor]) -> Removal:
    """Return the removal of the groups that are flagged, by layer."""
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

    The largest layer comes first. Every layer may use an equal share of the tolerance, and what earlier layers left. In
    a second round, all layers may use the rest. A group that is noisy but important would protect all less noisy ones,
    so some of these are then tried one by one.
    """
    gone = {layer: torch.zeros_like(scores, dtype=torch.bool) for layer, scores in noise.items()}
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
        low, high = 0, len(order) - 1  # search the largest number that can be removed; at least one group stays
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
        spread: The same network with the variances as weights.
        names: The weights to round.
        score: The loss; None uses the second finest of `SHARES`.
        tolerance: The largest increase of the loss.
        renew: Whether batch statistics are estimated again for every trial.
    """
    limit = score(network, renew) + tolerance if score else 0.0
    for share in SHARES if score else SHARES[-2:-1]:
        made, precisions = own_copy(network), {}
        for name in names:
            value = made.get_parameter(name)
            precisions[name] = Precision.from_variances(value, spread.get_parameter(name), share)
            value.copy_(precisions[name].rounded(value))
        if score is None or score(made, renew) <= limit:
            break
    return made, precisions


def _count_unremovable(units: Units, removal: Removal) -> dict[str, int]:
    """Count, by reason, the units that are pruned to zero but cannot be removed."""
    wanted = removal.units(replace(units, required={}, nonzero_at_zero=set())) - removal.units(units)
    moved = "an activation does not map zero to zero"
    return dict(Counter(units.required.get(unit, moved) for unit in wanted))
