"""The base of every predictive distribution, and what they share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ..arguments import require_seed, require_whole
from ..errors import InputError


class Predictive(ABC):
    """A mixture over samples: each draw of the network gives one distribution of the target.

    `variance == epistemic + aleatoric` holds entry by entry: the spread of the samples' means, plus the mean
    of the samples' variances.
    """

    weights: Tensor
    """How much each draw counts, (n,); they sum to 1."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """Predictive mean, (batch, *out)."""

    @property
    @abstractmethod
    def epistemic(self) -> Tensor:
        """Variance of the samples' means: what more data could take away."""

    @property
    @abstractmethod
    def aleatoric(self) -> Tensor:
        """Mean of the samples' variances: noise in the data that no amount of it takes away."""

    @property
    def variance(self) -> Tensor:
        """Total variance, epistemic + aleatoric."""
        return self.epistemic + self.aleatoric

    @property
    def std(self) -> Tensor:
        """Standard deviation: the square root of the total variance."""
        return self.variance.sqrt()

    @abstractmethod
    def log_prob(self, y: Any) -> Tensor:
        """Return the log density or probability of the targets under the mixture over samples."""

    @abstractmethod
    def sample(self, n: int, seed: int = 0) -> Tensor:
        """Draw targets from the predictive, (n, batch, ...)."""

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        kept = "no samples kept" if isinstance(self, Summary) else f"{len(self.weights)} samples"
        told = "; ".join(f"{name} {_first(values)}" for name, values in self._told().items())
        return f"{type(self).__name__}({tuple(self.mean.shape)}, {kept}: {told})"

    def _told(self) -> dict[str, Tensor]:
        """Return what a person wants to see first, by name."""
        return {"mean": self.mean, "std": self.std, "epistemic std": self.epistemic.sqrt()}


class Summary(Predictive):
    """A predictive without samples: a few tensors, each with rows first and, where there are any, pixels last."""

    @property
    @abstractmethod
    def parts(self) -> tuple[Tensor, ...]:
        """The tensors that it consists of."""

    @abstractmethod
    def with_parts(self, *parts: Tensor) -> Self:
        """Return a predictive of the same kind that consists of other tensors."""


def _first(values: Tensor, count: int = 3) -> str:
    """Return the first numbers as text."""
    flat = values.flatten()
    shown = [f"{value:.4g}" for value in flat[:count].tolist()]
    return ", ".join([*shown, "..."] if flat.numel() > count else shown)


def as_targets(y: Any, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """Return targets as a tensor; they may be a tensor, an array, a data frame's column or a list of numbers."""
    return number_tensor("y", y, device, dtype)


def number_tensor(
    name: str, values: Any, device: torch.device | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Return numbers of any kind as a tensor; plain Python numbers keep all their digits."""
    try:
        return torch.as_tensor(values if isinstance(values, Tensor) else np.array(values), dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"{type(values).__name__} is no array of numbers ({error})"
        raise InputError(f"{name}: {what}; a tensor would work.") from error


def of_seen(points: Tensor, seen: Tensor | None) -> Tensor:
    """Return the scores of the targets that are there, and 0 for those that are missing."""
    return points if seen is None else torch.where(seen, points, 0)


def at_least_single(values: Tensor) -> Tensor:
    """Return half precision as single: sums over samples, and densities, need more digits than outputs have."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def largest_number(dtype: torch.dtype) -> float:
    """Return the size up to which numbers, and their differences, have squares that the dtype can hold."""
    return math.sqrt(torch.finfo(dtype).max) / 2


def draw_weights(weights: Tensor | None, like: Tensor) -> Tensor:
    """Return normalised weights of the n samples along the first axis of `like`; None makes all count the same."""
    if weights is None:
        return torch.full((len(like),), 1 / len(like), dtype=like.dtype, device=like.device)
    if weights.shape != (len(like),) or bool((weights < 0).any()) or not bool(0 < weights.sum() < math.inf):
        raise InputError(
            f"weights: shape {tuple(weights.shape)} for {len(like)} samples; one finite, non-negative number per draw, "
            "not all of them 0, would work."
        )
    return (weights / weights.sum()).to(like)


def weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean over the first axis.

    The factors must keep their digits, or the samples' small differences are lost: `autocast` would round them to half
    precision, and in a product of matrices (not in one with a vector) a GPU that is set to TF32 to 10 bits.
    """
    if torch.is_autocast_enabled(values.device.type):
        with torch.autocast(values.device.type, enabled=False):
            return weighted_mean(values, weights)
    rest = values.shape[1:]
    return torch.mv(values.reshape(len(values), rest.numel()).T, weights).view(rest)


def mixture_log(log_values: Tensor, weights: Tensor) -> Tensor:
    """Return the log of the weighted mean of exp(values) over the first axis."""
    log_weights = weights.log().view(-1, *[1] * (log_values.dim() - 1))
    return torch.logsumexp(log_values + log_weights, dim=0)


def sampling(n: Any, seed: Any) -> torch.Generator:
    """Return a generator for n samples, or refuse an `n` or a `seed` that is no whole number."""
    require_whole("n", n, error=InputError)
    return torch.Generator().manual_seed(require_seed(seed))


def choose_samples(n: int, weights: Tensor, shape: tuple[int, ...], seed: int) -> tuple[Tensor, torch.Generator]:
    """Choose the draw that each sample comes from, (n, *shape); return the generator to go on with, too."""
    generator, n = sampling(n, seed), int(n)
    count = n * int(torch.tensor(shape).prod()) if shape else n
    chosen = torch.multinomial(weights.double().cpu(), max(1, count), replacement=True, generator=generator)
    return chosen[:count].view(n, *shape).to(weights.device), generator
