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
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy import special, stats
from torch import Tensor

from ..network import BatchNormLayer
from ..schema import Array, listed, number, record, refuse, text, whole

LAYERS = listed(record(name=text, channels=whole(1), eps=number(0)), 1, 100_000)
SCHEMA = record(layers=LAYERS, rows=whole(2), sizes=listed(whole(1), 1, 64), counts=listed(whole(2), 1, 64))
TENSORS = ("centers", "variance", "widths", "logs", "moments", "shares")

# Batches below which nothing can be said about how they vary.
LEAST_BATCHES = 8

# Batches of a smaller size that are needed for a centre of their own.
LEAST_SMALL = 8
# Beyond this, a channel's squared deviation counts by its logarithm: one that hardly ever fires would decide alone.
PLAIN_UP_TO = 100.0
# Variances below this share of their part's median are taken to be that: dead channels have none.
LEAST_SHARE = 1e-4
# Widths at or below this are those of parts that do not vary, such as variances of single rows.
NO_WIDTH = 1e-6
# Pairs of a batch and its halves that a share of 1 counts for, beside those that were seen.
PRIOR_PAIRS = 2
# Batches that the skewness of a gamma distribution counts for, beside those that were seen.
PRIOR_BATCHES = 64


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
    """Training batches of J sizes at L layers with C channels together; 2C coordinates, 2L parts.

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
        largest = max(found)
        if len(found[largest]) < LEAST_BATCHES:
            return None
        # A few batches would not tell a centre; halves of batches are there for what they share with the whole.
        sizes = sorted(size for size, batches in found.items() if len(batches) >= LEAST_SMALL or size == largest)
        pool = _Pool(layers, found[largest].device)
        batches = found[largest].double()
        deviations = batches - batches.mean(0)
        variance = pool.floored(deviations.square().sum(0) / (len(batches) - 1))
        centers, widths, logs = [], [], []
        for size in sizes:
            at_size = found[size].double()
            center, count = at_size.mean(0), len(at_size)
            own = (at_size - center).square() * (count / (count - 1))
            scaled = variance * (largest / size)
            if size == largest:
                width = torch.ones(2 * len(layers), dtype=torch.float64, device=batches.device)
                # The variance that a batch is measured by is that of the others.
                others = pool.floored((variance * (count - 1) - own) / (count - 2))
            else:
                width = pool.means(own.mean(0) / scaled)
                others = scaled * pool.spread(width.clamp_min(NO_WIDTH))
            left_out = own * (count / (count - 1)) / (others * (1 + 1 / (count - 1)))
            distances = pool.distances(left_out, width > NO_WIDTH)
            centers.append(center)
            widths.append(width)
            logs.append(_log_moments(distances))
        dtype = found[largest].dtype
        return cls(
            layers,
            rows,
            tuple(sizes),
            tuple(len(found[size]) for size in sizes),
            torch.stack(centers).to(dtype),
            variance.to(dtype),
            torch.stack(widths),
            _smoothed(torch.stack(logs), sizes, [len(found[size]) for size in sizes]),
            _moments(distances, pool, deviations / variance.sqrt()),
            _shares(pool, variance, deviations[list(halved)], found.get(largest // 2)),
        )

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
        return cls(layers, config["rows"], tuple(config["sizes"]), tuple(config["counts"]), **tensors)

    @property
    def batch_size(self) -> int:
        """M, the batch size of the fit."""
        return self.sizes[-1]

    def expected(self, size: float, groups: int) -> Expected:
        """Return what the mean of some groups of rows shows; between the sizes that were looked at, interpolated.

        The centre has an error of its own: from the rows that there were to train on, and the batches looked at.
        """
        below, above, share = self._between(size)
        pool = _Pool(self.layers, self.variance.device)
        # Of a part that does not vary in fewer rows, such as the variances of one, only more rows tell anything.
        varies = (self.widths[below] > NO_WIDTH) | (share <= 0)
        shares = pool.spread(torch.where(varies, share, 1.0).double())
        center = torch.lerp(self.centers[below].double(), self.centers[above].double(), shares)
        widths = self.widths.clamp_min(NO_WIDTH).log()
        width = torch.lerp(widths[below], widths[above], torch.where(varies, self._log_share(size), 1.0).double()).exp()
        known = width > 2 * NO_WIDTH
        # Batches are drawn without replacement, which takes a share of the variance away.
        finite = (self.rows - 1) / max(1, self.rows - self.batch_size)
        looked = above if share > 0.5 else below
        fresh = width * (1 / (size * groups) + 1 / (self.sizes[looked] * self.counts[looked]))
        times = pool.spread(fresh + self.shares / self.rows)
        return Expected(center, self.variance.double() * (self.batch_size * finite) * times, known)

    def distances(self, standardised: Tensor, known: Tensor) -> Tensor:
        """Return the distance of every part and then their mean, (..., 2L + 1), from squared deviations (..., 2C)."""
        return _Pool(self.layers, standardised.device).distances(standardised, known)

    def part_means(self, values: Tensor) -> Tensor:
        """Return the mean over the channels of every part, (..., 2L), of values (..., 2C)."""
        return _Pool(self.layers, values.device).means(values)

    def by_coordinate(self, values: Tensor) -> Tensor:
        """Return every part's value for all of its channels, (..., 2C)."""
        return _Pool(self.layers, values.device).spread(values)

    def effective_channels(self, size: float, groups: int) -> np.ndarray:
        """Return how many independent channels would give distances that vary as much, (2L + 1,).

        A distance over k independent normal channels is a chi-squared variable of k degrees, divided by k.
        """
        with np.errstate(divide="ignore"):
            if groups == 1:
                return np.clip(2 / self._logs(size)[:, 1].cpu().numpy() ** 2, 1, 1e6)
            mean, variance, _, limit, _ = self.moments.cpu().numpy().T
            return np.clip(2 * mean**2 / (limit + np.maximum(variance - limit, 0) / groups), 1, 1e6)

    def tail(self, distances: Tensor, size: float, groups: int) -> np.ndarray:
        """Return the chance that training rows are at least as far, (2L + 1,); NaN for parts that do not vary."""
        found = distances.double().cpu().numpy()
        if groups == 1:
            logs = self._logs(size)
            with np.errstate(divide="ignore", invalid="ignore"):
                mean, std, skew = logs.cpu().numpy().T
                return _log_tail(np.log(found), mean, std, skew, self._looked_at(size))
        mean, variance, third, limit_variance, limit_third = self.moments.cpu().numpy().T
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

    def _looked_at(self, size: float) -> int:
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


class _Pool:
    """Averages over the channels of every part.

    Args:
        layers: The layers, in running order.
        device: Where the coordinates are.
    """

    def __init__(self, layers: tuple[BatchNormLayer, ...], device: torch.device) -> None:
        channels = torch.tensor([layer.channels for layer in layers] * 2, device=device)
        self.channels = channels.double()
        self.part = torch.repeat_interleave(torch.arange(len(channels), device=device), channels)

    def means(self, values: Tensor) -> Tensor:
        sums = values.new_zeros(*values.shape[:-1], len(self.channels), dtype=torch.float64)
        return sums.index_add_(-1, self.part, values.double()) / self.channels

    def spread(self, values: Tensor) -> Tensor:
        return values[..., self.part]

    def distances(self, standardised: Tensor, known: Tensor) -> Tensor:
        beyond = PLAIN_UP_TO * (standardised / PLAIN_UP_TO).clamp_min(1).log()
        parts = self.means(standardised.clamp_max(PLAIN_UP_TO) + beyond)
        parts = torch.where(known, parts, torch.nan)
        return torch.cat([parts, parts.nanmean(-1, keepdim=True)], -1)

    def floored(self, variance: Tensor) -> Tensor:
        """Return variances that are nowhere far below those of their part."""
        least = torch.stack([part.median(-1).values for part in variance.split(self._sizes, -1)], -1)
        return torch.maximum(variance, self.spread(least * LEAST_SHARE)).clamp_min(1e-30)

    @property
    def _sizes(self) -> list[int]:
        return self.channels.long().tolist()


def _log_moments(distances: Tensor) -> Tensor:
    """Return mean, standard deviation and skewness of the logarithm of distances (batches, parts), (parts, 3)."""
    logs = distances.log()
    mean, std, count = logs.mean(0), logs.std(0), len(logs)
    shape = _gamma_shape(std)
    gamma_skew = -(shape**-2 + shape**-3) / std**3
    seen = ((logs - mean) / std).pow(3).mean(0)
    skew = (count * seen + PRIOR_BATCHES * gamma_skew) / (count + PRIOR_BATCHES)
    # Parts that do not vary have no distances; zeros stand for them, which files may hold.
    return torch.stack([mean, std, skew], -1).nan_to_num(0, 0, 0)


def _smoothed(logs: Tensor, sizes: Sequence[int], counts: Sequence[int]) -> Tensor:
    """Return what distances at a size are like, helped by the sizes beside it, which have more or as many batches."""
    smooth = logs.clone()
    for i in range(1, len(sizes) - 1):
        share = math.log(sizes[i] / sizes[i - 1]) / math.log(sizes[i + 1] / sizes[i - 1])
        between = torch.lerp(logs[i - 1], logs[i + 1], share)
        own = counts[i] / (counts[i] + min(counts[i - 1], counts[i + 1]))
        seen = (logs[i - 1 : i + 2, :, 1] > 0).all(0)[:, None]
        smooth[i] = torch.where(seen, torch.lerp(between, logs[i], own), logs[i])
    return smooth


def _shares(pool: _Pool, variance: Tensor, wholes: Tensor, halves: Tensor | None) -> Tensor:
    """Return the share of a part's variance that the mean of a batch's two halves has in common with the batch, (2L,).

    Args:
        pool: Averages over the channels of every part.
        variance: The variance of coordinates between batches, (2C,).
        wholes: Deviations of batches, (pairs, 2C).
        halves: Coordinates of their halves, two by two, (2 pairs, 2C).
    """
    common = torch.zeros_like(pool.channels)
    if halves is not None and len(wholes):
        means = halves.double().unflatten(0, (-1, 2)).mean(1)
        common = pool.means((wholes * (means - means.mean(0)) / variance).sum(0))
        if len(wholes) > 1:
            common = common * (len(wholes) / (len(wholes) - 1))
    return ((common + PRIOR_PAIRS) / (len(wholes) + PRIOR_PAIRS)).clamp(0, 1)


def _moments(distances: Tensor, pool: _Pool, standardised: Tensor) -> Tensor:
    """Return `TrainingBatches.moments` from distances, (batches, parts), and standardised deviations, (batches, 2C)."""
    mean, variance = distances.mean(0), distances.var(0)
    third = (distances - mean).pow(3).mean(0)
    count = len(standardised)
    limits, whole = [], standardised.new_zeros(count, count)
    for part, channels in zip(standardised.split(pool._sizes, -1), pool._sizes, strict=True):
        gram = part @ part.T / channels
        limits.append(_limits(gram))
        whole += gram / len(pool._sizes)
    limits.append(_limits(whole))
    return torch.cat([torch.stack([mean, variance, third], -1), torch.stack(limits)], -1).nan_to_num(0, 0, 0)


def _limits(gram: Tensor) -> Tensor:
    """Return variance and third cumulant of the quadratic form in normal variables with these inner products.

    Products of different batches alone: those with themselves would count the batches' own kurtosis.
    """
    count = len(gram)
    off = gram - gram.diag().diag()
    variance = 2 * off.square().sum() / (count * (count - 1))
    third = 8 * ((off @ off) * off).sum() / (count * (count - 1) * (count - 2))
    return torch.stack([variance, third.clamp_min(0)])


def _log_tail(logs: np.ndarray, mean: np.ndarray, std: np.ndarray, skew: np.ndarray, count: int) -> np.ndarray:
    """Return tails of distributions of logarithms with these moments, which so many batches told.

    To the left skewed is the logarithm of a gamma variable; a Pearson III distribution would end on the right.
    """
    # Moments of few batches are uncertain: as with Student's t, deviations then count for less.
    standard = (logs - mean) / std
    tail = np.maximum(stats.t.sf(standard / math.sqrt(1 + 1 / count), count - 1), 1e-300)
    standard = np.where(standard > 0, stats.norm.isf(tail), standard)
    shape = _gamma_shape(std)
    gamma = stats.gamma.sf(np.exp(std * standard + special.digamma(shape)), shape)
    found: np.ndarray = np.where(skew < 0, gamma, _pearson_tail(standard, np.maximum(skew, 0)))
    return found


def _gamma_shape(std: Any) -> Any:
    """Return the shape of a gamma variable whose logarithm has this standard deviation, nearly."""
    return (1 + (1 + 2 * std**2) ** 0.5) / (2 * std**2)  # where 1/k + 1/(2 k^2), about trigamma(k), is the variance


def _pearson_tail(standard: np.ndarray, skew: np.ndarray) -> np.ndarray:
    most = 2 * math.sqrt(2)  # beyond, half of all mass would lie at the lower end
    found: np.ndarray = stats.pearson3.sf(standard, np.clip(skew, -most, most))
    return found
