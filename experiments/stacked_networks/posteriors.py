"""Fit the package's methods on all networks of a stack, and sample from them: outputs (n, E, rows, outputs)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bayesnorm.likelihoods import Gaussian
from bayesnorm.methods import BatchNormMethod, Collected, MCDropout
from bayesnorm.network import State
from bayesnorm.posterior import BatchNormPosterior, mask_seeds
from bayesnorm.tabular.stacked import Stack, StackedExecutable, StackedRows, run_blocks

from .fused.fused_passes import moments as fused_moments
from .unit_moments import batch_statistics, stacked_moments


def in_target_units(stack: Stack, rows: StackedRows) -> StackedExecutable:
    """Return a stack whose outputs are in the units of the targets that its networks were trained on."""
    return StackedExecutable(stack, rows.scales.y_std, rows.scales.y_mean)


@torch.no_grad()
def output_moments(executable: StackedExecutable, states: State, rows: StackedRows) -> tuple[Tensor, Tensor]:
    """Return mean and variance (ddof 0) of the outputs over states, (E, n, outputs) each, without storing all."""
    stack, x = executable.stack, executable.stack.inputs(rows)
    parts = fused_moments(stack, states, x)
    if parts is None:
        mean = x.new_empty(len(stack), x.shape[-2], stack.widths[-1])
        var = torch.empty_like(mean)

        def store(members: slice, numbers: slice, f: Tensor) -> None:
            mean[members, numbers] = f.mean(0)
            var[members, numbers] = (f - mean[members, numbers]).square().mean(0)

        run_blocks(stack, states, x, store)
        parts = mean, var
    mean, var = parts
    return mean.double() * executable.scale + executable.shift, var.double() * executable.scale.square()


@dataclass(frozen=True, eq=False)
class StackedSampler(ABC):
    """A posterior over the states of all networks of a stack.

    Args:
        executable: The networks, with outputs in the targets' units.
    """

    executable: StackedExecutable

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> State:
        """Sample n states for every network."""

    def outputs(self, rows: StackedRows, n: int, seed: int = 0) -> Tensor:
        """Return the outputs of n samples, (n, E, rows, outputs)."""
        return self.executable.run(self.sample(n, seed), rows)

    def moments(self, rows: StackedRows, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the outputs of n samples, (E, rows, outputs) each."""
        return output_moments(self.executable, self.sample(n, seed), rows)


@dataclass(frozen=True, eq=False)
class BatchNormSampler(StackedSampler):
    """The package's posterior over batch statistics, with coordinates (E, 2C).

    Args:
        posterior: The posterior.
        batch_size: The effective batch size of each network, (E,).
    """

    posterior: BatchNormPosterior
    batch_size: Tensor

    def at_batch_size(self, batch_size: float | Tensor) -> BatchNormSampler:
        """Return a sampler with another effective batch size M', one for all networks or one for each."""
        sizes = torch.as_tensor(batch_size, dtype=torch.float64).cpu()
        return replace(self, batch_size=sizes.expand(len(self.batch_size)))

    def sample(self, n: int, seed: int = 0) -> State:
        distribution, generator = self.posterior, torch.Generator().manual_seed(seed)
        spread = (distribution.fitted_batch_size / self.batch_size).sqrt().to(distribution.running)[:, None]
        return distribution.state(distribution.location + spread * distribution.fluctuations.sample(n, generator))


@dataclass(frozen=True, eq=False)
class DropoutSampler(StackedSampler):
    """Random dropout masks, the same for all networks, which must have the same rates."""

    def sample(self, n: int, seed: int = 0) -> State:
        rates = {name: float(rate[0]) for name, rate in self.executable.stack.rates.items()}
        return {f"{name}.seed": seeds for name, seeds in mask_seeds(rates, n, seed).items()}


def fit_stacked(method: BatchNormMethod | MCDropout, stack: Stack, rows: StackedRows, seed: int = 0) -> StackedSampler:
    """Fit a method on every network of a stack, as `method.fit` would fit it on each with the same seed.

    Only the factorised `GaussianBN` differs: it uses random batches instead of one pass over the rows.
    """
    executable = in_target_units(stack, rows)
    if isinstance(method, MCDropout):
        return DropoutSampler(executable)
    assert method.batch_size is not None
    if method.from_batches:
        return batchnorm_sampler(
            method, batch_statistics(stack, rows, method.batch_size, method.states, seed), executable
        )
    return batchnorm_sampler(method, stacked_moments(stack, rows, method.batch_size, seed), executable)


def batchnorm_sampler(method: BatchNormMethod, collected: Collected, executable: StackedExecutable) -> BatchNormSampler:
    """Return the posterior of a method from collected statistics, which several methods may share."""
    runs: Any = executable  # the posterior only asks it for its device
    posterior = BatchNormPosterior(runs, Gaussian(), **method.learned(collected))
    return BatchNormSampler(executable, posterior, torch.full((len(executable.stack),), posterior.batch_size).double())
