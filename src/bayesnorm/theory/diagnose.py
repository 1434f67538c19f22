"""Test whether batch statistics are as Gaussian and as independent as the theory of batch norm assumes.

A unit has pre-activation mean mu, variance s^2 and fourth central moment m4. By the central limit theorem, appendix 1.3
of Teye et al. (2018) treats its batch statistics as normal for batch size M,

    mean_B ~ N(mu, s^2 / M),     std_B ~ N(s, (m4 - s^4) / (4 s^2 M)),

and its approximate posterior treats all of them as independent. `diagnose` tests this on real batches. For every unit
it runs the Kolmogorov-Smirnov test against these normals, and against normals of any mean and variance. It then
computes correlations, and the output variance that independent samples would give. For a convolution, the variances
are those of the per-image averages of h and of (h - mu)^2, as in `GaussianBN`.

How to read the result:
- A p-value says whether a difference was detected; with enough batches, every difference is. The *distance* says how
  large it is: the largest error of any cumulative probability.
- One unit in twenty is rejected by chance, so look at the share of rejected units. Units of a layer are correlated, so
  the share varies more than over independent tests.
- The theory's moments come from other passes over the training data, so the classical p-value is valid. With moments
  fitted to the same batches it would be far too large; those p-values use Lilliefors' distribution.
- The theory is a limit. At finite M, the biased std_B is below s by about (1/2 + (m4/s^4 - 1)/8) s/M. A batch out of N
  examples without replacement has (N - M) / (N - 1) of the variance in theory. Later layers vary less than in theory,
  because earlier layers normalise by the batch and so remove most of its randomness. For example, the mean of a ReLU
  after normal units keeps (pi - 3) / (2 pi - 2), or 3 %, of its variance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..arguments import as_whole, require_seed, require_whole
from ..errors import BayesNormError
from ..likelihoods import Gaussian
from ..network import (
    BatchStatistics,
    Executable,
    LayerChoice,
    MiniBatches,
    State,
    TrainData,
    collect_moments,
    collect_statistics,
    mini_batches,
)
from ..posterior import BatchNormPosterior, Empirical, coordinates
from ..progress import Progress, long_progress
from .diagnosis import BatchSizeDiagnosis, Dependence, Diagnosis, LayerDiagnosis, Normality

LEAST_BATCHES = 20

# Numbers of training examples whose outputs are compared, of shuffles of the statistics, and of outputs in memory.
ROWS, SHUFFLES, OUTPUT_ELEMENTS = 16, 4, 2**24

# A spread below this share of a unit's magnitude is rounding error: the unit does not vary.
CONSTANT = 1e-6


def diagnose(
    model: nn.Module,
    train_data: TrainData,
    batch_sizes: int | Sequence[int] = (32,),
    *,
    batches: int = 256,
    layers: LayerChoice = None,
    output: str | int | None = None,
    forward_kwargs: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Diagnosis:
    """Compare the statistics of real training batches with the theory, and return a `Diagnosis`.

    Args:
        model: The network; never modified.
        train_data: The data that it was trained on: a `DataLoader`, a `Dataset`, a tensor, an array or a pair.
        batch_sizes: The batch sizes M to test.
        batches: The number of batches S of each size; more batches detect smaller differences.
        layers: Which batch-norm layers: names, a predicate, the last k in running order, or None for all.
        output: The entry to use if the network returns a dict or a tuple.
        forward_kwargs: Further arguments of the network's forward, the same in every call. Default: None.
        seed: Seed for choosing the batches.
    """
    sizes, batches, seed = _require(batch_sizes, batches, seed)
    executable = Executable(model, output, forward_kwargs)
    looks = [mini_batches(train_data, size, batches, seed, executable.form) for size in sizes]
    with long_progress("diagnose") as tell:
        return Diagnosis(tuple(_at_batch_size(model, look, layers, executable, tell) for look in looks))


@dataclass(frozen=True)
class _WholePasses(MiniBatches):
    """Passes over the data, at least one and at least `count` batches, in which every example occurs equally often."""

    def epoch(self) -> Iterator[Tensor]:
        """Fill an incomplete batch at the end of a pass with other examples of the next, so that none is in it twice.

        Dropping such batches, as in training, would change the theory's moments by more than the tests can detect.
        """
        generator = np.random.default_rng([self.seed, 1])  # not the batches that are tested
        order = generator.permutation(self.rows)
        for _ in range(1, -(-self.count * self.batch_size // self.rows)):
            begun = order[len(order) // self.batch_size * self.batch_size :]
            following = generator.permutation(self.rows)
            again = np.isin(following, begun)
            missing = self.batch_size - len(begun)
            rest = np.concatenate([following[~again][missing:], following[again]])
            order = np.concatenate([order, following[~again][:missing], generator.permutation(rest)])
        whole = order[: len(order) // self.batch_size * self.batch_size].reshape(-1, self.batch_size)
        return (inputs for inputs, _ in self.source.batches(whole.tolist(), self.seed))


def _at_batch_size(
    model: nn.Module, batches: MiniBatches, layers: LayerChoice, executable: Executable, tell: Progress
) -> BatchSizeDiagnosis:
    """Diagnose the network at one batch size."""
    statistics = collect_statistics(model, batches, layers, tell)
    passes = _WholePasses(batches.source, batches.batch_size, batches.count, batches.seed)
    moments = collect_moments(model, passes, layers, tell)
    theory = moments.statistics
    mu, var, mean_std, square_std = (
        value.double() for value in (theory.mean[0], theory.var[0], moments.mean_std, moments.square_std)
    )
    root = batches.batch_size**0.5
    size = mu.abs() + theory.running_mean.double().abs()
    mean_scale = torch.where(mean_std > CONSTANT * size, mean_std / root, torch.nan)
    std_scale = torch.where(square_std > CONSTANT * var, square_std / (2 * var.sqrt() * root), torch.nan)
    std_scale = torch.where(var.sqrt() > CONSTANT * size, std_scale, torch.nan)
    channels = [layer.channels for layer in statistics.layers]
    means = ((statistics.mean.double() - mu) / mean_scale).cpu().split(channels, dim=1)
    stds = ((statistics.var.double().sqrt() - var.sqrt()) / std_scale).cpu().split(channels, dim=1)
    return BatchSizeDiagnosis(
        batch_size=batches.batch_size,
        rows=batches.rows,
        batches=len(statistics.mean),
        layers=tuple(
            LayerDiagnosis(layer.name, Normality.test(mean), Normality.test(std))
            for layer, mean, std in zip(statistics.layers, means, stds, strict=True)
        ),
        dependence=Dependence.from_parts([torch.cat(pair, dim=1) for pair in zip(means, stds, strict=True)]),
        variance_lost=_variance_lost(executable, statistics, batches.seed),
    )


def _variance_lost(executable: Executable, statistics: BatchStatistics, seed: int) -> float:
    """Return the share of a typical output's variance that is lost if every statistic is sampled independently.

    The samples are those of MCBN as published: every batch once. They are compared with the same numbers after
    shuffling every statistic over batches separately, which keeps the marginals and removes all dependence.
    """
    values = coordinates(statistics.mean, statistics.var, statistics.layers)
    centre = values.double().mean(0).to(values.dtype)
    posterior = BatchNormPosterior(
        executable=executable,
        likelihood=Gaussian(),
        method="MCBN",
        layers=statistics.layers,
        center="batch",
        running=coordinates(statistics.running_mean, statistics.running_var, statistics.layers),
        batch_mean=centre,
        fluctuations=Empirical(values - centre),
        fitted_batch_size=statistics.batch_size,
        batch_size=float(statistics.batch_size),
        rows=statistics.rows,
    )
    x = statistics.example[:ROWS]
    generator = torch.Generator().manual_seed(seed)
    together = _output_variance(executable, posterior.state(values), x)
    apart = torch.zeros_like(together)
    for _ in range(SHUFFLES):
        orders = torch.rand(values.shape, generator=generator).argsort(0).to(values.device)
        apart += _output_variance(executable, posterior.state(values.gather(0, orders)), x) / SHUFFLES
    moved = together > 0
    return float(1 - (apart[moved] / together[moved]).median()) if bool(moved.any()) else float("nan")


def _output_variance(executable: Executable, states: State, x: Tensor) -> Tensor:
    """Return the variance of every output over all states, (rows, *out)."""
    usual = executable.point(x).double()
    samples = len(next(iter(states.values())))
    chunk = max(1, OUTPUT_ELEMENTS // usual.numel())
    total, squares = torch.zeros_like(usual), torch.zeros_like(usual)
    for start in range(0, samples, chunk):
        part = {name: value[start : start + chunk] for name, value in states.items()}
        deviation = executable.run(part, x).double() - usual
        total += deviation.sum(0)
        squares += deviation.square().sum(0)
    return (squares - total.square() / samples) / (samples - 1)


def _require(batch_sizes: Any, batches: Any, seed: Any) -> tuple[tuple[int, ...], int, int]:
    """Check and return the batch sizes, each once, the number of batches and the seed."""
    requested = (batch_sizes,) if as_whole(batch_sizes) is not None else batch_sizes
    several = isinstance(requested, Sequence) and not isinstance(requested, str | bytes)
    sizes = [size for size in map(as_whole, requested if several else ()) if size is not None and size >= 2]
    if not sizes or len(sizes) < len(requested):
        raise BayesNormError(f"batch_sizes must be whole numbers of at least 2, such as (16, 32), got {batch_sizes!r}.")
    requirement = f"a whole number of at least {LEAST_BATCHES}, better a few hundred"
    batches = require_whole("batches", batches, LEAST_BATCHES, requirement=requirement)
    return tuple(dict.fromkeys(sizes)), batches, require_seed(seed)
