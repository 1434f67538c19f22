"""Prune channels of a batch-normalised network that is trained already.

Channels go one by one, always the one that is missed least by the layers which read it, and those that stay make up for
it as far as they can (`elimination.py`). What a layer misses is a change of its outputs, counted

- for `criterion="signal"` as it comes through batch norm behind it: by its scale^2 over the running variance;
- for `criterion="statistics"` against how much the output's mean varies between batches by the posterior, which is
  noise that the network has learned to bear.

Where no batch norm follows, a change counts as a share of the output's own variance.
`criterion="scale"` is |scale| of a channel's batch norm alone, and nothing makes up for what goes: network slimming
(Liu et al. 2017), without its penalty in training.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ..arguments import require_number, require_seed
from ..errors import BayesNormError, NetworkError
from ..network import (
    OUTPUTS,
    Removal,
    Units,
    find_batchnorm,
    multiply_adds as count_multiply_adds,
    own_copy,
    removed,
    renewed_statistics,
    trace_units,
)
from ..posterior import Posterior
from .compressed import Compressed
from .elimination import eliminated, make_up, readers

Criterion = Literal["signal", "statistics", "scale"]

# Samples from which variances of batch means are taken.
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
    which `bn.MCBN` gives it uncertainty again.

    Args:
        posterior: The posterior of `MCBN`, `GaussianBN` or `StochasticBN`; it and its network are left as they are.
        x: Training rows, which tell how channels vary together, and on which batch statistics are estimated anew.
        multiply_adds: Which share of the multiply-adds may stay at most.
        criterion: "signal", "statistics" or "scale"; see `bayesnorm.compression.channels`.
        seed: Same seed, same samples of batch statistics.
    """
    share = require_number("multiply_adds", multiply_adds, above=0, most=1)
    if criterion not in get_args(Criterion):
        raise BayesNormError(f"criterion must be one of {get_args(Criterion)}, got {criterion!r}.")
    executable = posterior.executable
    rows, network = executable.input(x), own_copy(posterior.model)
    units = trace_units(network)
    variances: dict[str, Tensor | None] = {name: layer.running_var for name, layer in find_batchnorm(network).items()}
    if criterion == "statistics":
        variances = dict(_mean_variances(posterior, require_seed(seed)))
    changed = own_copy(network)
    heard = [] if criterion == "scale" else readers(changed, units, rows, variances)
    scales = _scales(network, units)
    candidates = eliminated(heard, set(scales)) if heard else iter(sorted(scales, key=scales.__getitem__))
    limit, order = share * count_multiply_adds(network, rows), list[int]()

    def enough(count: int) -> bool:
        return count_multiply_adds(removed(network, units, _removal(units, set(order[:count]))), rows) <= limit

    while not enough(len(order)):
        more = list(islice(candidates, max(1, len(scales) // 20)))
        order += more
        if not more:
            break
    if not scales:
        raise NetworkError(
            f"model: no channel goes through batch norm to layers that could do without{_why(units)}; none is pruned."
        )
    low, high = 0, len(order)  # how many go: the fewest with which few enough multiply-adds stay
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    make_up(heard, set(order[:low]))
    small = removed(changed, units, _removal(units, set(order[:low])))
    left = count_multiply_adds(small, rows)
    if left > limit:
        raise NetworkError(
            f"multiply_adds: {share:g} was given, and {share * left / limit:.3f} of them stay where all channels that "
            f"can go are removed{_why(units)}; more than that would work."
        )
    return Compressed(renewed_statistics(small, rows), network, {}, {}, posterior.likelihood, executable.output)


def _why(units: Units) -> str:
    """Tell what keeps most of the units, but for the network's outputs."""
    reasons = Counter(reason for reason in units.kept.values() if reason != OUTPUTS)
    return f" (most stay because {reasons.most_common(1)[0][0]})" if reasons else ""


def _removal(units: Units, gone: set[int]) -> Removal:
    """Return the removal of units: all that write them fall silent, and all that read them do not hear them."""

    def flags(layers: Mapping[str, Sequence[int | None]]) -> dict[str, Tensor]:
        return {name: torch.tensor([unit in gone for unit in own]) for name, own in layers.items()}

    return Removal(flags(units.written), flags(units.read))


def _mean_variances(posterior: Posterior, seed: int) -> dict[str, Tensor]:
    """Return by layer how much the means of batches vary, times their size: a row's variance, were all independent."""
    drawn, size = posterior.sample(DRAWS, seed), getattr(posterior, "batch_size", 1.0)
    ending = ".running_mean"
    found = {name.removesuffix(ending): size * means.var(0) for name, means in drawn.items() if name.endswith(ending)}
    if not any(bool(var.any()) for var in found.values()):
        raise BayesNormError(
            f"posterior: {type(posterior).__name__} samples no batch statistics; one of MCBN, or another criterion, "
            "would work."
        )
    return found


def _scales(network: nn.Module, units: Units) -> dict[int, float]:
    """Return the scale of every unit that batch norm carries and that can go; of added ones the root of all squares."""
    squares: dict[int, float] = {}
    for name, layer in find_batchnorm(network).items():
        carried = units.carried.get(name, [])
        scale = torch.ones(len(carried)) if layer.weight is None else layer.weight
        for unit, square in zip(carried, scale.square().tolist(), strict=False):
            squares[unit] = squares.get(unit, 0.0) + square
    return {unit: math.sqrt(square) for unit, square in squares.items() if unit not in units.kept}
