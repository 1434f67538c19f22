"""How the statistics of training batches vary: what new rows are compared with.

The statistics of n rows are not those of M rows with wider fluctuations. Few rows have smaller variances (a batch's own
is biased), skewed logarithms, and every layer normalises what the next one sees; the deeper the network, the further
from a mere factor M / n. So batches of several sizes are looked at when a posterior is fitted, and more rows than a
batch are compared in groups of about a batch each, whose mean is exact.

A *part* is the means, or the log-variances, of one layer. Its distance is the mean over channels of the squared
deviation from the centre, each divided by its variance: 1 for training rows. Channels and layers move together, so a
distance has no textbook distribution. Its own is taken from training batches, each held against all others: of its
logarithm a mean, a standard deviation and a skewness (a Pearson III distribution). For the mean of G groups it tends to
that of a quadratic form in normal variables, whose variance and third cumulant are those of the batches' inner
products; what a single batch has beyond falls as 1/G and 1/G^2.
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
from .batch_variation import NO_WIDTH, gamma_shape, variation
from .parts import Parts

LAYERS = listed(record(name=text, channels=whole(1), eps=number(0)), 1, 100_000)
SCHEMA = record(layers=LAYERS, rows=whole(2), sizes=listed(whole(1), 1, 64), counts=listed(whole(2), 1, 64))
# Skewness below which a distribution is taken for a normal one.
LEAST_SKEW = 1e-5
TENSORS = ("centers", "variance", "widths", "logs", "moments", "shares")


class Expected(NamedTuple):
    """What training rows would show.

    Args:
        center: Its coordinates on average, (2C,).
        variance: Their variance about that for fresh rows, (2C,).
        known: Which parts vary at all at this size, (2L,).
    """

    center: Tensor
    variance: Tensor
    known: Tensor


@dataclass(frozen=True)
class TrainingBatches:
    """Training batches of J sizes at L layers with C channels together; 2C coordinates, 2L parts. Tensors on the CPU.

    Args:
        layers: The layers, in running order.
        rows: N, how many training rows the batches were drawn from.
        sizes: Rows in a batch, ascending, (J,); the last is the batch size of the fit.
        counts: How many batches of each size there were, (J,).
        centers: The mean of their coordinates, (J, 2C).
        variance: The variance of coordinates between batches of the last size, (2C,).
        widths: How much wider than that variance times (last size / size) a part is, (J, 2L).
        logs: Mean, standard deviation and skewness of the logarithm of distances, of all parts and then of their mean,
            (J, 2L + 1, 3).
        moments: At the last size, mean, variance and third cumulant of these distances, and the variance and third
            cumulant that many groups tend to, (2L + 1, 5).
        shares: How much of a part's variance is the sum of what single rows contribute, (2L,). The rest is chance that
            every batch makes anew, so that the training rows as a whole have no part in it.
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
    def of(
        cls, layers: tuple[BatchNormLayer, ...], rows: int, found: Mapping[int, Tensor], halved: Sequence[int] = ()
    ) -> Self | None:
        """Learn from the coordinates of batches; None where there are too few of the largest.

        Args:
            layers: The layers, in running order.
            rows: N, how many training rows the batches were drawn from.
            found: Coordinates of batches, (batches, 2C), by size.
            halved: Numbers of the largest batches whose halves are those of half the size.
        """
        learned = variation(Parts(layers, next(iter(found.values())).device), found, halved)
        return None if learned is None else cls(layers, rows, **learned)

    def tensors(self) -> dict[str, Tensor]:
        """Return what is saved as tensors."""
        return {name: getattr(self, name) for name in TENSORS}

    def config(self) -> dict[str, Any]:
        """Return what is saved as JSON."""
        return {
            "layers": [asdict(layer) for layer in self.layers],
            "rows": self.rows,
            "sizes": list(self.sizes),
            "counts": list(self.counts),
        }

    @staticmethod
    def arrays(config: dict[str, Any], dtypes: Collection[torch.dtype]) -> dict[str, Array]:
        """Describe what `tensors()` consists of, given a `config()` that was checked."""
        sizes, parts = len(config["sizes"]), 2 * len(config["layers"])
        rising = all(a < b for a, b in pairwise(config["sizes"]))
        if not rising or len(config["counts"]) != sizes or config["rows"] <= config["sizes"][-1]:
            refuse("training_batches", config["sizes"], "rising sizes below the rows, and as many counts")
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
        """Return what `tensors()` and `config()` described."""
        layers = tuple(BatchNormLayer(**layer) for layer in config["layers"])
        own = {name: tensor.cpu() for name, tensor in tensors.items()}
        return cls(layers, config["rows"], tuple(config["sizes"]), tuple(config["counts"]), **own)

    @cached_property
    def parts(self) -> Parts:
        """The parts of the coordinates."""
        return Parts(self.layers, self.variance.device)

    @property
    def batch_size(self) -> int:
        """M, the batch size of the fit."""
        return self.sizes[-1]

    def expected(self, size: float, groups: int) -> Expected:
        """Return what the mean of some groups of rows shows; between the sizes that were looked at, interpolated.

        The centre has an error of its own: from the rows that there were to train on, and the batches looked at.
        """
        below, above, share = self._between(size)
        parts = self.parts
        # Of a part that does not vary in fewer rows, such as the variances of one, only more rows tell anything.
        varies = (self.widths[below] > NO_WIDTH) | (share <= 0)
        shares = parts.spread(torch.where(varies, share, 1.0).double())
        center = torch.lerp(self.centers[below].double(), self.centers[above].double(), shares)
        widths = self.widths.clamp_min(NO_WIDTH).log()
        width = torch.lerp(widths[below], widths[above], torch.where(varies, self._log_share(size), 1.0).double()).exp()
        known = width > 2 * NO_WIDTH
        # Batches are drawn without replacement, which takes a share of the variance away.
        finite = (self.rows - 1) / max(1, self.rows - self.batch_size)
        looked = above if share > 0.5 else below
        fresh = width * (1 / (size * groups) + 1 / (self.sizes[looked] * self.counts[looked]))
        times = parts.spread(fresh + self.shares / self.rows)
        return Expected(center, self.variance.double() * (self.batch_size * finite) * times, known)

    def effective_channels(self, size: float, groups: int) -> np.ndarray:
        """Return how many independent channels would give distances that vary as much, (2L + 1,).

        A distance over k independent normal channels is a chi-squared variable of k degrees, divided by k.
        """
        with np.errstate(divide="ignore"):
            if groups == 1:
                return np.clip(2 / self._logs(size)[:, 1].numpy() ** 2, 1, 1e6)
            mean, variance, _, limit, _ = self.moments.numpy().T
            return np.clip(2 * mean**2 / (limit + np.maximum(variance - limit, 0) / groups), 1, 1e6)

    def tail(self, distances: Tensor, size: float, groups: int) -> np.ndarray:
        """Return the chance that training rows are at least as far, (2L + 1,); NaN for parts that do not vary."""
        found = distances.numpy()
        if groups == 1:
            logs = self._logs(size)
            with np.errstate(divide="ignore", invalid="ignore"):
                mean, std, skew = logs.numpy().T
                return _log_tail(np.log(found), mean, std, skew, self.looked_at(size))
        mean, variance, third, limit_variance, limit_third = self.moments.numpy().T
        variance = limit_variance + np.maximum(variance - limit_variance, 0) / groups
        third = limit_third + np.maximum(third - limit_third, 0) / groups**2
        with np.errstate(divide="ignore", invalid="ignore"):
            return _pearson_tail((found - mean) / np.sqrt(variance), third / variance**1.5)

    def _between(self, size: float) -> tuple[int, int, float]:
        """Return the places of two sizes that a size lies between, and how near the second it is in 1 / size."""
        if len(self.sizes) == 1:
            return 0, 0, 1.0
        above = next((i for i, known in enumerate(self.sizes) if known >= size), len(self.sizes) - 1)
        above = max(above, 1)
        low, high = 1 / self.sizes[above - 1], 1 / self.sizes[above]
        share = (1 / size - low) / (high - low)
        return above - 1, above, max(share, 0.0)  # fewer rows than were ever looked at are taken for the fewest

    def _logs(self, size: float) -> Tensor:
        """Return mean, standard deviation and skewness of the logarithm of distances at a size, (2L + 1, 3)."""
        below, above, share = self._between(size)
        varies = (self.logs[below, :, 1:2] > 0) | (share <= 0)
        return torch.lerp(self.logs[below], self.logs[above], torch.where(varies, self._log_share(size), 1.0).double())

    def looked_at(self, size: float) -> int:
        """Return how many batches of about a size there were."""
        below, above, _ = self._between(size)
        return self.counts[above if self._log_share(size) > 0.5 else below]

    def _log_share(self, size: float) -> float:
        """Return how near the second of the sizes that a size lies between it is in log size."""
        below, above, _ = self._between(size)
        if below == above:
            return 1.0
        low, high = self.sizes[below], self.sizes[above]
        return min(max(math.log(size / low) / math.log(high / low), 0.0), 1.0)


def _log_tail(logs: np.ndarray, mean: np.ndarray, std: np.ndarray, skew: np.ndarray, count: int) -> np.ndarray:
    """Return tails of distributions of logarithms with these moments, which so many batches told.

    To the left skewed is the logarithm of a gamma variable; a Pearson III distribution would end on the right.
    """
    # Moments of few batches are uncertain: as with Student's t, deviations then count for less.
    standard = (logs - mean) / std
    tail = np.maximum(scipy.special.stdtr(count - 1, -standard / math.sqrt(1 + 1 / count)), 1e-300)
    standard = np.where(standard > 0, -scipy.special.ndtri(tail), standard)
    shape = gamma_shape(std)
    gamma = scipy.special.gammaincc(shape, np.exp(std * standard + scipy.special.digamma(shape)))
    found: np.ndarray = np.where(skew < 0, gamma, _pearson_tail(standard, np.maximum(skew, 0)))
    return found


def _pearson_tail(standard: np.ndarray, skew: np.ndarray) -> np.ndarray:
    """Return tails of Pearson III distributions with mean 0, standard deviation 1 and these skewnesses.

    By the functions that `scipy.stats` would call in a hundred times their time.
    """
    most = 2 * math.sqrt(2)  # beyond, half of all mass would lie at the lower end
    skew = np.clip(skew, -most, most)
    some = np.where(np.abs(skew) < LEAST_SKEW, LEAST_SKEW, skew)
    shape = 4 / some**2
    at = np.maximum(shape + 2 * standard / some, 0)
    above = np.where(some > 0, scipy.special.gammaincc(shape, at), scipy.special.gammainc(shape, at))
    found: np.ndarray = np.where(np.abs(skew) < LEAST_SKEW, scipy.special.ndtr(-standard), above)
    return found
