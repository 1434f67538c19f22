"""Prune channels of a trained batch-normalised network.

Channels are removed one by one, always the least important one. The weights of the following layers are adjusted to
compensate as far as possible (`elimination.py`). A channel's importance is the change that its removal causes in the
outputs of the following layers. The criterion says how this change is measured:

- `"signal"`: after the following batch norm, that is, weighted by scale^2 / running variance.
- `"statistics"`: the same in total for a layer, but outputs whose mean varies more between batches under the posterior
  count less, because the network already tolerates that.
- `"scale"`: the importance is only |scale| of the channel's own batch norm, and nothing compensates for its removal.
  This is network slimming (Liu et al. 2017) without its penalty in training.

Without a following batch norm, the first two measure the change relative to the output's variance. They are averages
over the outputs of a layer, so that layers with and without batch norm are on one scale (`elimination.py`).
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
from ..errors import BayesNormError, NetworkError, warn
from ..likelihoods import Likelihood
from ..network import (
    OUTPUTS,
    Executable,
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
from ..predictive import ClassificationPredictive, RegressionPredictive, as_targets
from .compressed import Compressed
from .elimination import eliminated, make_up, readers

Criterion = Literal["signal", "statistics", "scale"]

# The number of samples for estimating the variances of batch means.
SAMPLES = 256

# The smallest share of multiply-adds that may be asked for.
LEAST_MULTIPLY_ADDS = 0.05

# A warning appears if predictions for this share of the examples change.
CHANGED = 0.1

# The number of examples whose predictions are compared.
COMPARED = 1024


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
    """Return a smaller network without the least important channels, with new batch statistics.

    The smaller network is not trained. A few epochs of `bayesnorm.training.distill` or `train` on `.network` recover
    most of the accuracy. Then fit `bn.MCBN` to it for uncertainty. If the predictions for `x` change much, a warning
    says so. The result's `repr` says what was pruned.

    Args:
        posterior: The posterior of `MCBN`, `GaussianBN` or `StochasticBN`; it and its network are not modified.
        x: Training examples. They give the covariance of channels and the new batch statistics. With targets, such as
            (x, y), the warning says what a classifier's accuracy was and is.
        multiply_adds: The largest share of the multiply-adds to keep, at least 0.05. [default: 0.5]
        criterion: How a channel's importance is measured. "signal": its effect after the following batch norm.
            "statistics": the same, but outputs that vary more between batches count less.
            "scale": the scale of its own batch norm alone. [default: "signal"]
        seed: Seed for sampling batch statistics.
    """
    share = require_number(
        "multiply_adds",
        multiply_adds,
        least=LEAST_MULTIPLY_ADDS,
        most=1,
        requirement=f"a number from {LEAST_MULTIPLY_ADDS} to 1",
    )
    seed = require_seed(seed)
    if criterion not in get_args(Criterion):
        raise BayesNormError(f"criterion must be one of {get_args(Criterion)}, got {criterion!r}.")
    if not isinstance(posterior, Posterior):
        raise BayesNormError(
            f"posterior must be the posterior of a batch-norm method, got {type(posterior).__name__}. "
            "Fit one first: bn.MCBN(batch_size=32).fit(model, train_data, likelihood)."
        )
    executable = posterior.executable
    if executable.forward_kwargs:
        names = ", ".join(map(repr, executable.forward_kwargs))
        raise NetworkError(
            f"posterior was fitted with forward_kwargs ({names}), with which a network cannot be traced. Give these "
            "arguments of forward default values, and fit again without forward_kwargs."
        )
    (rows, y), network = executable.inputs_and_targets(x), own_copy(posterior.model)
    units = trace_units(network)
    variances = _mean_variances(posterior, seed) if criterion == "statistics" else {}
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
            f"model has no channel that can be pruned{_why(units)}. A channel must have batch norm, and every layer "
            "that uses it must be able to drop it."
        )
    low, high = 0, len(order)  # search the smallest number of channels to remove
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    make_up(heard, set(order[:low]))
    small = removed(changed, units, _removal(units, set(order[:low])))
    left = count_multiply_adds(small, rows)
    if left > limit:
        raise NetworkError(
            f"multiply_adds={share:g}, but a share of {share * left / limit:.3f} is left after removing every channel "
            f"that can be removed{_why(units)}. Use a larger share."
        )
    small = renewed_statistics(small, rows)
    _warn_if_changed(executable, Executable(small, executable.output), posterior.likelihood, rows, y)
    return Compressed(small, network, {}, {}, posterior.likelihood, executable.output)


def _warn_if_changed(before: Executable, after: Executable, likelihood: Likelihood, x: Tensor, y: Any) -> None:
    """Warn if the smaller network's predictions for training examples are far from those of the original network."""
    few = x[:COMPARED]
    old, new = (likelihood.predictive(executable.run(None, few)) for executable in (before, after))
    if isinstance(old, ClassificationPredictive) and isinstance(new, ClassificationPredictive):
        lost, what = float((old.label != new.label).double().mean()), "gives another class for {} of x"
        targets = None if y is None else as_targets(y, few.device)[:COMPARED]
        if targets is not None and targets.shape == old.label.shape:
            was, now = (float((option.label == targets).double().mean()) for option in (old, new))
            what += f", and its accuracy on x is {now:.1%} instead of {was:.1%}"
    elif isinstance(old, RegressionPredictive) and isinstance(new, RegressionPredictive):
        spread = (old.mean - old.mean.mean(0)).square().sum().clamp_min(1e-300)
        lost, what = float((old.mean - new.mean).square().sum() / spread), "changes {} of the outputs' variance on x"
    else:
        return
    if lost > CHANGED:
        warn(
            f"The smaller network {what.format(f'{min(lost, 1):.0%}')}. Fine-tune it with bayesnorm.training.distill "
            "before use, or keep a larger share of multiply_adds."
        )


def _why(units: Units) -> str:
    """Return the most frequent reason, other than being an output, why units cannot be removed; empty if none."""
    reasons = Counter(reason for reason in units.required.values() if reason != OUTPUTS)
    return f" (most frequent reason: {reasons.most_common(1)[0][0]})" if reasons else ""


def _removal(units: Units, gone: set[int]) -> Removal:
    """Return the removal of units from all layers that produce them and all layers that use them."""

    def flags(layers: Mapping[str, Sequence[int | None]]) -> dict[str, Tensor]:
        return {name: torch.tensor([unit in gone for unit in layer_units]) for name, layer_units in layers.items()}

    return Removal(flags(units.written), flags(units.read))


def _mean_variances(posterior: Posterior, seed: int) -> dict[str, Tensor]:
    """Return the variance of batch means times the batch size, by layer: the variance of independent examples."""
    sampled, size = posterior.sample(SAMPLES, seed), getattr(posterior, "batch_size", 1.0)
    ending = ".running_mean"
    variances = {
        name.removesuffix(ending): size * means.var(0) for name, means in sampled.items() if name.endswith(ending)
    }
    if not any(bool(var.any()) for var in variances.values()):
        raise BayesNormError(
            f"posterior is a {type(posterior).__name__}, which does not sample batch statistics. Use a posterior of "
            'MCBN, or criterion="signal".'
        )
    return variances


def _scales(network: nn.Module, units: Units) -> dict[int, float]:
    """Return the batch-norm scale of every removable unit; for units that are added, the root sum of squares."""
    squares: dict[int, float] = {}
    for name, layer in find_batchnorm(network).items():
        carried = units.carried.get(name, [])
        scale = torch.ones(len(carried)) if layer.weight is None else layer.weight
        for unit, square in zip(carried, scale.square().tolist(), strict=False):
            squares[unit] = squares.get(unit, 0.0) + square
    return {unit: math.sqrt(square) for unit, square in squares.items() if unit not in units.required}
