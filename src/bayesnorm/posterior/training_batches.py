"""How the statistics of training batches vary, as a reference for new data.

Statistics of n examples do not simply fluctuate more than those of M examples. With few examples, variances are smaller
(batch variance is biased) and their logarithms are skewed. Also, every layer normalises the input of the next one, so
the deeper the network, the less M / n describes the difference. Therefore a fit records batches of several sizes. More
examples than a batch are compared in groups of about one batch each, whose mean is exact.

A *part* is the means, or the log-variances, of one layer. Its distance is the mean over channels of the squared
deviation from the centre, each divided by its variance; it is 1 for training examples. Channels and layers vary
together, so a distance has no standard distribution. Its distribution is estimated from training batches, each compared
with all others: mean, standard deviation and skewness of its logarithm (a Pearson III distribution). The mean over G
groups approaches the distribution of a quadratic form in normal variables, whose variance and third cumulant come from
the inner products of batches. The excess of a single batch falls as 1/G and 1/G^2.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
import torch
from torch import Tensor

from ..network import BatchNormLayer
from ..schema import Array, listed, number, record, refuse, text, whole
from ..words import ShortRepr
from .batch_variation import NO_WIDTH, Parts, gamma_shape, variation

LAYERS = listed(record(name=text, channels=whole(1), eps=number(0)), 1, 100_000)
SCHEMA = record(layers=LAYERS, rows=whole(2), sizes=listed(whole(1), 1, 64), counts=listed(whole(2), 1, 64))
# Distributions with a smaller skewness are treated as normal.
LEAST_SKEW = 1e-5
TENSORS = ("centers", "variance", "widths", "logs", "moments", "shares")


class Expected(NamedTuple):
    """The expected statistics of training examples.

    Args:
        center: Mean coordinates, (2C,).
        variance: Variance of new examples around the centre, (2C,).
        varies: Which parts vary at all at this size, (2L,).
    """

    center: Tensor
    variance: Tensor
    varies: Tensor


@dataclass(frozen=True, repr=False)
class TrainingBatches(ShortRepr):
    """Training batches of J sizes at L layers with C channels in total; 2C coordinates, 2L parts. Tensors on the CPU.

    Args:
        layers: The layers, in running order.
        rows: Number of training examples, N.
        sizes: Examples per batch, ascending, (J,); the last is the batch size of the fit.
        counts: Number of batches of each size, (J,).
        centers: Mean of their coordinates, (J, 2C).
        variance: Variance of coordinates between batches of the last size, (2C,).
        widths: Variance of a part relative to that variance times (last size / size), (J, 2L).
        logs: Mean, standard deviation and skewness of log distances, for all parts and for their mean, (J, 2L + 1, 3).
        moments: Mean, variance and third cumulant of the distances at the last size, and the limits of variance and
            third cumulant for many groups, (2L + 1, 5).
        shares: Share of a part's variance that is a sum of contributions of single examples, (2L,). The rest is
            randomness of each batch, which averages out over the whole training data.
    """

    layers: tuple[BatchNormLayer, ...]
    rows: int
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    centers: Tensor
    variance: Tensor
    widths: Tensor
    logs: Tensor
    moments: Tensor
    shares: Tensor

    @classmethod
    def from_statistics(
        cls,
        layers: tuple[BatchNormLayer, ...],
        rows: int,
        coordinates: Mapping[int, Tensor],
        halved: Sequence[int] = (),
    ) -> Self | None:
        """Estimate the variation from coordinates of batches. Return None if there are too few of the largest size.

        Args:
            layers: The layers, in running order.
            rows: Number of training examples, N.
            coordinates: Coordinates of batches, (batches, 2C), by size.
            halved: Indices of the largest batches whose halves are the batches of half the size.
        """
        learned = variation(Parts(layers, next(iter(coordinates.values())).device), coordinates, halved)
        return None if learned is None else cls(layers, rows, **learned)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors to save."""
        return {name: getattr(self, name) for name in TENSORS}

    def config(self) -> dict[str, Any]:
        """Return the JSON values to save."""
        return {
            "layers": [asdict(layer) for layer in self.layers],
            "rows": self.rows,
            "sizes": list(self.sizes),
            "counts": list(self.counts),
        }

    @staticmethod
    def arrays(config: dict[str, Any], dtypes: Collection[torch.dtype]) -> dict[str, Array]:
        """Describe the tensors of `tensors()`, given a checked `config()`."""
        sizes, parts = len(config["sizes"]), 2 * len(config["layers"])
        rising = all(a < b for a, b in pairwise(config["sizes"]))
        if not rising or len(config["counts"]) != sizes or config["rows"] <= config["sizes"][-1]:
            refuse("training_batches", config["sizes"], "ascending sizes below the number of rows, one per count")
        width, double = 2 * sum(layer["channels"] for layer in config["layers"]), (torch.float64,)
        return {
            "centers": Array((sizes, width), dtypes),
            "variance": Array((width,), dtypes, 0.0),
            "widths": Array((sizes, parts), double, 0.0),
            "logs": Array((sizes, parts + 1, 3), double),
            "moments": Array((parts + 1, 5), double),
            "shares": Array((parts,), double, 0.0),
        }

    @classmethod
    def restored(cls, tensors: dict[str, Tensor], config: dict[str, Any]) -> Self:
        """Return the object that `tensors()` and `config()` described."""
        layers = tuple(BatchNormLayer(**layer) for layer in config["layers"])
        arrays = {name: tensor.cpu() for name, tensor in tensors.items()}
        return cls(layers, config["rows"], tuple(config["sizes"]), tuple(config["counts"]), **arrays)

    @cached_property
    def parts(self) -> Parts:
        """The parts of the coordinates."""
        return Parts(self.layers, self.variance.device)

    @property
    def batch_size(self) -> int:
        """The batch size M of the fit."""
        return self.sizes[-1]

    def expected(self, size: float, groups: int) -> Expected:
        """Return the expected mean statistics of some groups of examples, interpolated between the recorded sizes.

        The variance includes the errors of the centre, from the finite training data and the number of batches.
        """
        below, above, share = self._between(size)
        parts = self.parts
        # If a part does not vary in smaller batches, as variances of one example, only the larger size is used.
        varies = (self.widths[below] > NO_WIDTH) | (share <= 0)
        shares = parts.spread(torch.where(varies, share, 1.0).double())
        center = torch.lerp(self.centers[below].double(), self.centers[above].double(), shares)
        widths = self.widths.clamp_min(NO_WIDTH).log()
        width = torch.lerp(widths[below], widths[above], torch.where(varies, self._log_share(size), 1.0).double()).exp()
        # Batches are sampled without replacement, which reduces the variance.
        finite = (self.rows - 1) / max(1, self.rows - self.batch_size)
        looked = above if share > 0.5 else below
        fresh = width * (1 / (size * groups) + 1 / (self.sizes[looked] * self.counts[looked]))
        times = parts.spread(fresh + self.shares / self.rows)
        return Expected(center, self.variance.double() * (self.batch_size * finite) * times, width > 2 * NO_WIDTH)

    def effective_channels(self, size: float, groups: int) -> np.ndarray:
        """Return how many independent channels would give distances that vary as much, (2L + 1,).

        The distance over k independent normal channels is a chi-squared variable of k degrees of freedom, over k.
        """
        with np.errstate(divide="ignore"):
            if groups == 1:
                return np.clip(2 / self._logs(size)[:, 1].numpy() ** 2, 1, 1e6)
            mean, variance, _, limit, _ = self.moments.numpy().T
            return np.clip(2 * mean**2 / (limit + np.maximum(variance - limit, 0) / groups), 1, 1e6)

    def tail(self, distances: Tensor, size: float, groups: int) -> np.ndarray:
        """Return the probability that training examples are as far or farther, (2L + 1,); NaN without variation."""
        values = distances.numpy()
        if groups == 1:
            logs = self._logs(size)
            with np.errstate(divide="ignore", invalid="ignore"):
                mean, std, skew = logs.numpy().T
                return _log_tail(np.log(values), mean, std, skew, self.looked_at(size))
        mean, variance, third, limit_variance, limit_third = self.moments.numpy().T
        variance = limit_variance + np.maximum(variance - limit_variance, 0) / groups
        third = limit_third + np.maximum(third - limit_third, 0) / groups**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return _pearson_tail((values - mean) / np.sqrt(variance), third / variance**1.5)

    def _between(self, size: float) -> tuple[int, int, float]:
        """Return the indices of the two neighbouring sizes, and the relative position between them in 1 / size."""
        if len(self.sizes) == 1:
            return 0, 0, 1.0
        above = next((i for i, present in enumerate(self.sizes) if present >= size), len(self.sizes) - 1)
        above = max(above, 1)
        low, high = 1 / self.sizes[above - 1], 1 / self.sizes[above]
        share = (1 / size - low) / (high - low)
        return above - 1, above, max(share, 0.0)  # sizes below the smallest recorded one are treated like it

    def _logs(self, size: float) -> Tensor:
        """Return mean, standard deviation and skewness of log distances at a size, (2L + 1, 3)."""
        below, above, share = self._between(size)
        varies = (self.logs[below, :, 1:2] > 0) | (share <= 0)
        return torch.lerp(self.logs[below], self.logs[above], torch.where(varies, self._log_share(size), 1.0).double())

    def looked_at(self, size: float) -> int:
        """Return the number of recorded batches of about this size."""
        below, above, _ = self._between(size)
        return self.counts[above if self._log_share(size) > 0.5 else below]

    def _log_share(self, size: float) -> float:
        """Return the relative position between the two neighbouring sizes in log size."""
        below, above, _ = self._between(size)
        if below == above:
            return 1.0
        low, high = self.sizes[below], self.sizes[above]
        return min(max(math.log(size / low) / math.log(high / low), 0.0), 1.0)


def _log_tail(logs: np.ndarray, mean: np.ndarray, std: np.ndarray, skew: np.ndarray, count: int) -> np.ndarray:
    """Return tail probabilities of distributions of logarithms, with moments estimated from `count` batches.

    For negative skewness the logarithm of a gamma variable is used, because a Pearson III distribution would be bounded
    on the right.
    """
    # Moments of few batches are uncertain, so deviations count less, as with Student's t.
    standard = (logs - mean) / std
    tail = np.maximum(scipy.special.stdtr(count - 1, -standard / math.sqrt(1 + 1 / count)), 1e-300)
    standard = np.where(standard > 0, -scipy.special.ndtri(tail), standard)
    shape = gamma_shape(std)
    gamma = scipy.special.gammaincc(shape, np.exp(std * standard + scipy.special.digamma(shape)))
    log_tail: np.ndarray = np.where(skew < 0, gamma, _pearson_tail(standard, np.maximum(skew, 0)))
    return log_tail


def _pearson_tail(standard: np.ndarray, skew: np.ndarray) -> np.ndarray:
    """Return tail probabilities of Pearson III distributions with mean 0, standard deviation 1 and these skewnesses.

    It calls the functions behind `scipy.stats` directly, which is a hundred times faster.
    """
    most = 2 * math.sqrt(2)  # beyond, half of the probability would lie at the lower end
    skew = np.clip(skew, -most, most)
    some = np.where(np.abs(skew) < LEAST_SKEW, LEAST_SKEW, skew)
    shape = 4 / some**2
    at = np.maximum(shape + 2 * standard / some, 0)
    above = np.where(some > 0, scipy.special.gammaincc(shape, at), scipy.special.gammainc(shape, at))
    tail: np.ndarray = np.where(np.abs(skew) < LEAST_SKEW, scipy.special.ndtr(-standard), above)
    return tail
