"""Gaussians over batch statistics: the distribution q of batch norm, priors, and the divergence (Teye et al. 2018).

**q** (appendix 1.3). A unit with pre-activation mean mu, variance s^2 and fourth central moment m4 has, for batch size
M and by the central limit theorem,

    mean_B ~ N(mu, s^2 / M),     std_B ~ N(s, (m4 - s^4) / (4 s^2 M)).

For a convolution, the M images of a batch are independent, but their pixels are not. So s^2 and m4 - s^4 are replaced
by the variances of the per-image averages of h and of (h - mu)^2, as in `GaussianBN`.

- A unit that does not vary (a dead one, or batches of two examples, where m4 = s^4) would make q a point and its
  divergence from any prior infinite. So s^2 is raised to at least `VARIANCE_FLOOR`, and both variances of q, times M,
  to at least `RELATIVE_FLOOR` of s^2. For a unit below the first floor, only the mean has a gradient.
- The variances of q are for independent examples. Batches without replacement from N examples have (N - M) / (N - 1)
  of them; as in the paper, this factor is left out.

**Divergence** (appendix 1.2). For factorised Gaussians it is a sum over units, and over mean and standard deviation, of

    KL(q || p) = ln(s_p / s_q) + (s_q^2 + (m_q - m_p)^2) / (2 s_p^2) - 1/2.

For a flat prior, an infinite constant is dropped, which leaves minus the entropy of q, -ln(2 pi e s_q^2) / 2. Then only
differences between batch sizes or networks have a meaning; the value itself can be negative.

Weight decay corresponds to one particular prior on batch statistics (`weight_decay_prior`). For any other Gaussian
prior, the divergence summed over all units is the regulariser Omega(theta) (appendix 1.4). `BatchNormKL` computes it:

- The moments of the current batch of size M stand in for those of the data. This makes s^2 too small by the factor
  1 - 1 / M, and (m_q - m_p)^2 too large by s^2 / M. Use ordinary training batch sizes, not a few examples.
- Only the latest forward pass counts. If a training step has several, compute Omega after each.
- With `SyncBatchNorm`, the moments are those of the examples in this process.
- Attach before `torch.compile`. Checkpointed layers need `use_reentrant=False`: with True they first run without
  gradients, so Omega has no gradient there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..arguments import require_number, require_positive, require_seed, require_whole
from ..errors import BayesNormError
from ..network import BatchNormLayer, Executable, LayerChoice, MomentRecorder, TrainData, collect_moments, mini_batches

# The smallest variance of a unit.
VARIANCE_FLOOR = 1e-12

# The smallest M * (variance of q), for means and standard deviations, as a share of the unit's variance.
RELATIVE_FLOOR = 1e-6

# Number of batches taken from training data that can only be streamed.
STREAM_BATCHES = 256


@dataclass(frozen=True, eq=False)
class UnitGaussians:
    """The distribution q: independent Gaussians over the batch mean and the batch standard deviation of C units.

    It can also hold moments of real batches: the mean and variance over batches of their means and standard deviations.

    Args:
        layers: The layers that the units belong to, in running order.
        mean_loc: Expected batch means, (C,).
        mean_var: Variances of batch means, (C,).
        std_loc: Expected batch standard deviations, (C,).
        std_var: Variances of batch standard deviations, (C,).
        batch_size: The batch size M of these variances; any positive number.
    """

    layers: tuple[BatchNormLayer, ...] = dataclasses.field(repr=False)
    mean_loc: Tensor = dataclasses.field(repr=False)
    mean_var: Tensor = dataclasses.field(repr=False)
    std_loc: Tensor = dataclasses.field(repr=False)
    std_var: Tensor = dataclasses.field(repr=False)
    batch_size: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch_size", require_positive("batch_size", self.batch_size))
        units = sum(layer.channels for layer in self.layers)
        for name in ("mean_loc", "mean_var", "std_loc", "std_var"):
            shape = tuple(getattr(self, name).shape)
            if shape != (units,):
                raise BayesNormError(f"{name} must have shape ({units},) for layers of {units} units, got {shape}.")

    def at_batch_size(self, batch_size: float) -> Self:
        """Return q for another batch size M, whole or not. Both variances scale as 1 / M, so no data are needed."""
        batch_size = require_positive("batch_size", batch_size)
        scale = self.batch_size / batch_size
        return dataclasses.replace(
            self, mean_var=scale * self.mean_var, std_var=scale * self.std_var, batch_size=batch_size
        )

    def floored(self) -> Self:
        """Return q with floors for units that do not vary, so that every divergence is finite; see the module."""
        std = self.std_loc.clamp_min(math.sqrt(VARIANCE_FLOOR))
        least = RELATIVE_FLOOR / self.batch_size * std.square()
        return dataclasses.replace(
            self,
            mean_var=torch.maximum(self.mean_var, least),
            std_loc=std,
            std_var=torch.maximum(self.std_var, least),
        )


def unit_gaussians(
    model: nn.Module,
    train_data: TrainData,
    batch_size: int | None = None,
    *,
    layers: LayerChoice = None,
    seed: int = 0,
    forward_kwargs: Mapping[str, Any] | None = None,
) -> UnitGaussians:
    """Return q of a network from one pass over its training data; `at_batch_size` gives it for any other M.

    Args:
        model: The network; never modified.
        train_data: The data that it was trained on, in any form that a method's `fit` takes.
        batch_size: The batch size M, also used in the pass; the moments of later layers depend on it. None uses that
            of a `DataLoader`.
        layers: Which batch-norm layers: names, a predicate, the last k in running order, or None for all.
        seed: Seed for assigning examples to batches.
        forward_kwargs: Further arguments of the network's forward. Default: None.
    """
    form = Executable(model, forward_kwargs=forward_kwargs).form
    batches = mini_batches(train_data, batch_size, STREAM_BATCHES, require_seed(seed), form)
    moments = collect_moments(model, batches, layers)
    statistics = moments.statistics
    return central_limit(
        statistics.layers,
        statistics.mean[0].double(),
        statistics.var[0].double(),
        moments.mean_std.double().square(),
        moments.square_std.double().square(),
        statistics.batch_size,
    )


def central_limit(
    layers: tuple[BatchNormLayer, ...],
    mean: Tensor,
    var: Tensor,
    mean_var: Tensor,
    square_var: Tensor,
    batch_size: float,
) -> UnitGaussians:
    """Return q from the units' means and variances, and the variances over examples of h and of (h - mean)^2."""
    alive = var > VARIANCE_FLOOR  # higher moments of the other units are rounding errors
    mean_var, square_var = torch.where(alive, mean_var, 0), torch.where(alive, square_var, 0)
    var = var.clamp_min(VARIANCE_FLOOR)  # before the root, whose gradient at 0 is infinite
    std_var = square_var / (4 * var)
    q = UnitGaussians(layers, mean, mean_var / batch_size, var.sqrt(), std_var / batch_size, float(batch_size))
    return q.floored()


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """Independent Gaussian priors on batch means and batch standard deviations: one for all units, or one per unit.

    Args:
        mean_loc: Prior means of batch means: a number, or (C,) for the units of all chosen layers in running order.
        mean_std: Their prior standard deviations; None is a flat prior, which ignores `mean_loc`.
        std_loc: Prior means of batch standard deviations.
        std_std: Their prior standard deviations.
    """

    mean_loc: float | Tensor
    mean_std: float | Tensor | None
    std_loc: float | Tensor
    std_std: float | Tensor

    def __post_init__(self) -> None:
        for name in ("mean_loc", "mean_std", "std_loc", "std_std"):
            value = getattr(self, name)
            if value is not None or name != "mean_std":
                checked = require_numbers(name, value, positive=name.endswith("_std"))
                object.__setattr__(self, name, checked)


def weight_decay_prior(rows: int, precision: float, weight_decay: float | Tensor) -> GaussianPrior:
    """Return the prior that weight decay implies: flat on means, N(0, 1 / (2 N tau lambda)) on standard deviations.

    The derivation (appendix 1.4) assumes batch norm without scale and shift in all layers, independent inputs to each
    layer, and large N and M. Then the divergence depends on a layer's weights W as N tau lambda |W|^2 does.

    Args:
        rows: The number N of training examples.
        precision: The precision tau of the Gaussian noise; 1 for classification.
        weight_decay: lambda of the objective `mean of (y - f)^2 / 2 + lambda |W|^2` (or cross entropy + lambda |W|^2),
            one number or one per unit. If the penalty is `lambda / 2 |W|^2`, as in `train` and in torch's optimisers,
            pass half of lambda.
    """
    rows = require_whole("rows", rows, requirement="the number of training examples, at least 1")
    precision = require_positive("precision", precision, requirement="a positive finite number")
    weight_decay = require_numbers("weight_decay", weight_decay, positive=True)
    variance = 1 / (2 * rows * precision * weight_decay)
    return GaussianPrior(mean_loc=0.0, mean_std=None, std_loc=0.0, std_std=variance**0.5)


def kl_divergence(q: UnitGaussians, prior: GaussianPrior) -> Tensor:
    """Return KL(q || prior) of every unit, (C,), its mean and standard deviation together.

    The total divergence is the sum over units. It is differentiable. The constant of a flat prior is left out, so then
    only differences have a meaning.
    """
    if not isinstance(q, UnitGaussians):
        raise BayesNormError(f"q must be UnitGaussians, got a {type(q).__name__}.")
    prior = require_prior(prior)
    mean_loc = _per_unit("mean_loc", prior.mean_loc, q.mean_loc)
    mean_std = None if prior.mean_std is None else _per_unit("mean_std", prior.mean_std, q.mean_loc)
    std_loc, std_std = _per_unit("std_loc", prior.std_loc, q.std_loc), _per_unit("std_std", prior.std_std, q.std_loc)
    return _divergence(q.mean_loc, q.mean_var, mean_loc, mean_std) + _divergence(q.std_loc, q.std_var, std_loc, std_std)


def require_prior(prior: Any) -> GaussianPrior:
    """Return a `GaussianPrior`, or raise an error."""
    if not isinstance(prior, GaussianPrior):
        raise BayesNormError(f"prior must be a GaussianPrior, got a {type(prior).__name__}.")
    return prior


def _divergence(loc: Tensor, var: Tensor, prior_loc: Tensor, prior_std: Tensor | None) -> Tensor:
    """Return the divergence of each Gaussian from its prior; minus its entropy for a flat prior."""
    if prior_std is None:
        return -0.5 * (math.log(2 * math.pi * math.e) + var.log())
    log_ratio = prior_std.log() - 0.5 * var.log()
    return log_ratio + 0.5 * (var / prior_std.square() + ((loc - prior_loc) / prior_std).square() - 1)


def _per_unit(name: str, value: float | Tensor, like: Tensor) -> Tensor:
    """Return a prior's parameter, one number or (C,), in the dtype and on the device of q."""
    if not isinstance(value, Tensor):
        return like.new_full((), value)  # created on the device, so no copy blocks
    if value.dim() and value.shape != like.shape:
        raise BayesNormError(
            f"prior: {name} has {len(value)} numbers, but there are {len(like)} units. Pass one number, or one per "
            "unit of the chosen layers in running order."
        )
    return value.to(like)


def require_numbers(name: str, value: Any, positive: bool = False) -> float | Tensor:
    """Return one finite number as a plain float, or one per unit as a tensor, or raise an error."""
    requirement = f"a {'positive ' if positive else ''}finite number or a flat tensor with one per unit"
    if not isinstance(value, Tensor):
        return require_number(name, value, above=0 if positive else -math.inf, requirement=requirement)
    if value.dim() > 1 or value.is_complex() or value.numel() == 0:
        raise BayesNormError(f"{name} must be {requirement}, got shape {tuple(value.shape)} and {value.dtype}.")
    good = torch.isfinite(value) & (value > 0 if positive else True)
    if not bool(good.all()):
        raise BayesNormError(f"{name} must be {requirement}, got {value[~good].flatten()[0].item()}.")
    return value


class BatchNormKL:
    """The regulariser Omega(theta) = KL(q || prior) at the current batch, differentiable in the weights.

    Use it in any training loop. With the mean negative log likelihood per example and N training examples:

        with BatchNormKL(model, prior, batch_size=32) as omega:
            for x, y in loader:
                loss = nll(model(x), y) + omega() / N

    Gradients flow through the mean, the variance and the fourth moment of every unit. The hooks do not change what the
    network computes. The `with` block always removes them; `attach()` and `close()` do the same without a block.

    Args:
        model: The network in training.
        prior: The prior on the batch means and standard deviations of its units.
        batch_size: The batch size M of q: that of training, or any positive number.
        layers: Which batch-norm layers: names, a predicate, the last k in running order, or None for all.
    """

    def __init__(
        self, model: nn.Module, prior: GaussianPrior, batch_size: float, *, layers: LayerChoice = None
    ) -> None:
        self.prior = require_prior(prior)
        self.batch_size = require_positive("batch_size", batch_size)
        self._recorder = MomentRecorder(model, layers)

    def attach(self) -> Self:
        """Start recording the network's batches, and return this object."""
        self._recorder.attach()
        return self

    def close(self) -> None:
        """Remove every hook from the network."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def units(self) -> UnitGaussians:
        """Return q for the batch of the latest forward pass, as part of the autograd graph."""
        statistics = self._recorder.read()
        return central_limit(
            statistics.layers,
            statistics.mean,
            statistics.var,
            statistics.mean_var,
            statistics.square_var,
            self.batch_size,
        )

    def __call__(self) -> Tensor:
        """Return KL(q || prior), summed over all units."""
        return kl_divergence(self.units(), self.prior).sum()
