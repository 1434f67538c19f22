"""Prune channels of a batch-normalised network that is trained already.

Batch norm says how much of a channel comes through: its scale. What that is worth depends on who reads it, and on how
much else they hear. A channel's score is how much of the variance of what reads it is its own,

    score of channel u  =  sum over outputs o of layers that read it of  s_u^2 |w_ou|^2 / v_o,

with w_ou the weights from u to o, and s_u^2 the variance of u after batch norm and a ReLU, had it a Gaussian before.
For `criterion="signal"`, v_o is the variance of o that batch norm behind it has seen (its running variance).
For `criterion="statistics"`, v_o is how much the mean of o varies between batches by the posterior: noise which the
network has learned to bear. Where no batch norm follows, v_o is what all channels together bring.
`criterion="scale"` is |scale_u| alone: network slimming (Liu et al. 2017), without its penalty in training.
Channels that are added to each other have one score, from the sum of their variances.

Channels go in the order of score / sqrt(multiply-adds that the channel takes in layers which write and read it). By the
score alone the many cheap channels of late layers go first, by score per multiply-add the few dear ones of early
layers; of the training images of a ResNet-32 with half of its multiply-adds, not trained again, 45 % are right by the
first, 61 % by the second and 62 % by what is between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ..arguments import require_number, require_seed
from ..errors import BayesNormError, NetworkError
from ..network import (
    Removal,
    Units,
    find_batchnorm,
    multiply_adds as count_multiply_adds,
    multiply_adds_by_layer,
    own_copy,
    removed,
    renewed_statistics,
    trace_units,
)
from ..posterior import Posterior
from .compressed import Compressed

Criterion = Literal["signal", "statistics", "scale"]

# Draws from which variances of batch means are taken.
DRAWS = 256


@torch.inference_mode(False)
@torch.no_grad()
def prune_channels(
    posterior: Posterior,
    x: Any,
    *,
    multiply_adds: float = 0.5,
    criterion: Criterion = "signal",
    seed: int = 0,
) -> Compressed:
    """Return a smaller plain network, from which the channels that matter least are removed, its statistics new.

    It is not trained; some epochs of `bayesnorm.training.train` on `.network` bring most of the accuracy back, after
    which `bn.MCBN` gives it doubt again.

    Args:
        posterior: The posterior of `MCBN`, `GaussianBN` or `StochasticBN`; it and its network are left as they are.
        x: Training rows, on which batch statistics are estimated anew.
        multiply_adds: Which share of the multiply-adds may stay at most.
        criterion: "signal", "statistics" or "scale"; see `bayesnorm.compression.channels`.
        seed: Same seed, same draws of batch statistics.
    """
    share = require_number("multiply_adds", multiply_adds, above=0, most=1)
    if criterion not in get_args(Criterion):
        raise BayesNormError(f"criterion: {criterion!r} was given; one of {get_args(Criterion)} would work.")
    executable = posterior.executable
    rows, network = executable.input(x), own_copy(posterior.model)
    units = trace_units(network)
    variances: dict[str, Tensor | None] = {name: layer.running_var for name, layer in find_batchnorm(network).items()}
    if criterion == "statistics":
        variances = dict(_mean_variances(posterior, require_seed(seed)))
    scores, costs = _scores(network, units, variances, criterion), _costs(units, multiply_adds_by_layer(network, rows))
    order = sorted(scores, key=lambda unit: scores[unit] / math.sqrt(costs.get(unit, 0.0) + 1))
    if not order:
        raise NetworkError("model: no channel goes through batch norm to layers that could do without; none is pruned.")
    low, high = 0, len(order)  # how many go: the fewest with which few enough multiply-adds stay
    limit = share * count_multiply_adds(network, rows)
    while low < high:
        middle = (low + high) // 2
        enough = count_multiply_adds(removed(network, units, _removal(units, set(order[:middle]))), rows) <= limit
        low, high = (low, middle) if enough else (middle + 1, high)
    removal = _removal(units, set(order[:low]))
    small = removed(network, units, removal)
    left = count_multiply_adds(small, rows)
    if left > limit:
        raise NetworkError(
            f"multiply_adds: {share:g} was given, and {share * left / limit:.3f} of them stay where all channels that "
            "can go are removed; more than that would work."
        )
    return Compressed(renewed_statistics(small, rows), network, {}, {}, posterior.likelihood, executable.output)


def _removal(units: Units, gone: set[int]) -> Removal:
    """Return the removal of units: all that write them fall silent."""
    return Removal({name: torch.tensor([unit in gone for unit in own]) for name, own in units.written.items()})


def _mean_variances(posterior: Posterior, seed: int) -> dict[str, Tensor]:
    """Return by layer how much the means of batches vary."""
    drawn = posterior.sample(DRAWS, seed)
    ending = ".running_mean"
    found = {name.removesuffix(ending): means.var(0) for name, means in drawn.items() if name.endswith(ending)}
    if not any(bool(var.any()) for var in found.values()):
        raise BayesNormError(
            f"posterior: {type(posterior).__name__} draws no batch statistics; one of MCBN, or another criterion, "
            "would work."
        )
    return found


def _scores(
    network: nn.Module, units: Units, variances: Mapping[str, Tensor | None], criterion: Criterion
) -> dict[int, float]:
    """Return how much every unit matters that batch norm carries and that can go."""
    signal: dict[int, float] = {}
    for name, layer in find_batchnorm(network).items():
        carried = units.carried.get(name, [])
        scale = torch.ones(len(carried)) if layer.weight is None else layer.weight
        shift = torch.zeros_like(scale) if layer.bias is None else layer.bias
        squares = scale.square() if criterion == "scale" else _rectified_variance(scale, shift)
        for unit, square in zip(carried, squares.tolist(), strict=False):
            signal[unit] = signal.get(unit, 0.0) + square
    removable = {unit: square for unit, square in signal.items() if unit not in units.kept and unit not in units.moved}
    if criterion == "scale":
        return removable
    found = dict.fromkeys(removable, 0.0)
    for name, read in units.read.items():
        weight: Any = network.get_submodule(name).weight
        energy = weight.square().flatten(2).sum(2) if weight.dim() > 2 else weight.square()
        heard = torch.tensor([0.0 if unit is None else signal.get(unit, 0.0) for unit in read]).to(energy)
        brought = energy * heard
        known = variances.get(units.normalised.get(name, ""))
        total = brought.sum(1) if known is None else known
        parts = (brought / total[:, None].clamp_min(1e-12)).sum(0).tolist()
        for own, part in zip(read, parts, strict=True):
            if own is not None and own in found:
                found[own] += part
    return found


def _costs(units: Units, by_layer: Mapping[str, int]) -> dict[int, float]:
    """Return the multiply-adds that every unit takes in the layers which write and read it."""
    found: dict[int, float] = {}
    for layers in (units.written, units.read):
        for name, own in layers.items():
            for unit in own:
                if unit is not None:
                    found[unit] = found.get(unit, 0.0) + by_layer.get(name, 0) / len(own)
    return found


def _rectified_variance(scale: Tensor, shift: Tensor) -> Tensor:
    """Return the variance of max(0, N(shift, scale^2))."""
    size = scale.abs().clamp_min(1e-12)
    ratio = shift / size
    density, below = (-ratio.square() / 2).exp() / math.sqrt(2 * math.pi), torch.special.ndtr(ratio)
    mean = shift * below + size * density
    square = (shift.square() + size.square()) * below + shift * size * density
    return (square - mean.square()).clamp_min(0)
