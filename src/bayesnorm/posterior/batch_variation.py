"""Estimate from statistics of training batches of several sizes how such batches vary, and compare batches by parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bayesnorm_runtime import NO_WIDTH, PLAIN_UP_TO, gamma_shape

from ..network import RECORDED_SIZES, BatchNormLayer

# Minimum number of batches to estimate their variation.
LEAST_BATCHES = 8
# Minimum number of batches of a smaller size to estimate a centre for it.
LEAST_SMALL = 8
# Variances are raised to this share of their part's median, because dead channels have no variance.
LEAST_SHARE = 1e-4
# Prior weight of a share of 1, in pairs of a batch and its halves.
PRIOR_PAIRS = 2
# Maximum number of batches whose inner products are computed: memory grows with the square, time with the cube.
MOST_PAIRED = 512
# Batches of at most this size behave unlike larger ones: two examples of a dense layer, normalised by themselves, are 1
# and -1. The means of the next layer are then nearly constant, except for rare pairs, and so few batches do not show
# how rare. Parts of smaller widths are therefore not compared at such sizes.
DEGENERATE_SIZE, LEAST_WIDTH = 2, 0.25
# Prior weight of the skewness of a gamma distribution, in batches.
PRIOR_BATCHES = 64


class Parts:
    """The means, and the log-variances, of every layer: 2L parts of 2C coordinates.

    Args:
        layers: The layers, in running order.
        device: Device of the coordinates.
    """

    def __init__(self, layers: tuple[BatchNormLayer, ...], device: torch.device) -> None:
        self.sizes = [layer.channels for layer in layers] * 2
        channels = torch.tensor(self.sizes, device=device)
        self.channels = channels.double()
        self.part = torch.repeat_interleave(torch.arange(len(channels), device=device), channels)

    def means(self, values: Tensor) -> Tensor:
        """Return the mean over the channels of every part, (..., 2L), of values (..., 2C)."""
        sums = values.new_zeros(*values.shape[:-1], len(self.channels), dtype=torch.float64)
        return sums.index_add_(-1, self.part, values.double()) / self.channels

    def spread(self, values: Tensor) -> Tensor:
        """Return every part's value for all of its channels, (..., 2C)."""
        return values[..., self.part]


def log_clipped(squares: Tensor) -> Tensor:
    """Return squared deviations with large ones damped, as distances use them."""
    return squares.clamp_max(PLAIN_UP_TO) + PLAIN_UP_TO * (squares / PLAIN_UP_TO).clamp_min(1).log()


def with_their_mean(distances: Tensor, varies: Tensor) -> Tensor:
    """Return distances of parts, NaN for parts that do not vary, followed by their mean, (..., 2L + 1)."""
    parts = torch.where(varies, distances, torch.nan)
    return torch.cat([parts, parts.nanmean(-1, keepdim=True)], -1)


def variation(parts: Parts, coordinates: Mapping[int, Tensor], halved: Sequence[int]) -> dict[str, Any] | None:
    """Return the fields of `TrainingBatches` that describe batches, or None if there are too few of the largest size.

    Args:
        parts: The parts of their coordinates.
        coordinates: Coordinates of batches, (batches, 2C), by size.
        halved: Indices of the largest batches whose halves are the batches of half the size.
    """
    largest = max(coordinates)
    if len(coordinates[largest]) < LEAST_BATCHES:
        return None
    # Without an eps, the log-variance of a single example is -inf.
    coordinates = {size: batches for size, batches in coordinates.items() if bool(torch.isfinite(batches).all())}
    # A few batches are not enough to estimate a centre. Halves of batches, unless they have a size of which every
    # fit has enough, are only there to be compared with the whole. If there are fewer halves than batches of the next
    # smaller size, their centre is interpolated instead.
    half = largest // 2
    smaller = max((size for size in coordinates if size < half), default=None)
    least = dict.fromkeys(coordinates, LEAST_SMALL) | {largest: 0}
    if smaller is not None and half not in RECORDED_SIZES:
        least[half] = max(LEAST_SMALL, len(coordinates[smaller]))
    sizes = sorted(size for size, batches in coordinates.items() if len(batches) >= least[size])
    counts = [len(coordinates[size]) for size in sizes]
    by_part = {size: batches.split(parts.sizes, -1) for size, batches in coordinates.items()}
    seen = [
        _PartStatistics({size: split[i].double() for size, split in by_part.items()}, sizes, halved)
        for i in range(len(parts.sizes))
    ]
    widths = torch.stack([part.widths for part in seen], -1)
    few = torch.tensor([size <= DEGENERATE_SIZE < largest for size in sizes], device=widths.device)
    widths = torch.where(few[:, None] & (widths < LEAST_WIDTH), 0.0, widths)
    logs = []
    for place, size in enumerate(sizes):
        distances = with_their_mean(torch.stack([part.distances[size] for part in seen], -1), widths[place] > NO_WIDTH)
        logs.append(_log_moments(distances))
    gram = sum((part.gram for part in seen), torch.zeros_like(seen[0].gram)) / len(seen)
    limits = torch.stack([*(_limits(part.gram) for part in seen), _limits(gram)])
    mean = distances.mean(0)
    moments = torch.stack([mean, distances.var(0), (distances - mean).pow(3).mean(0)], -1)
    dtype = coordinates[largest].dtype
    tensors = {
        "centers": torch.cat([part.centers for part in seen], -1).to(dtype),
        "variance": torch.cat([part.variance for part in seen]).to(dtype),
        "widths": widths,
        "logs": _smoothed(torch.stack(logs), sizes, counts),
        "moments": torch.cat([moments, limits], -1).nan_to_num(0, 0, 0),
        "shares": torch.stack([part.share for part in seen]),
    }
    # Comparisons are a few dozen operations on few numbers, which are slower on a GPU.
    return {"sizes": tuple(sizes), "counts": tuple(counts)} | {name: part.cpu() for name, part in tensors.items()}


class _PartStatistics:
    """Statistics of one part over batches. Only the channels of this part are in memory.

    Args:
        coordinates: Coordinates of batches, (batches, channels), by size.
        sizes: The sizes to describe, ascending.
        halved: Indices of the largest batches whose halves are the batches of half the size.
    """

    def __init__(self, coordinates: dict[int, Tensor], sizes: Sequence[int], halved: Sequence[int]) -> None:
        largest = sizes[-1]
        batches = coordinates[largest]
        deviations = batches - batches.mean(0)
        self.variance = _floored(deviations.square().sum(0) / (len(batches) - 1))
        self.centers = torch.stack([coordinates[size].mean(0) for size in sizes])
        self.distances: dict[int, Tensor] = {}
        widths = []
        for size, center in zip(sizes, self.centers, strict=True):
            count = len(coordinates[size])
            squares = (coordinates[size] - center).square() * (count / (count - 1))
            scaled = self.variance * (largest / size)
            width = squares.new_ones(()) if size == largest else (squares.mean(0) / scaled).mean()
            if size == largest:  # each batch is compared with the variance of the other batches
                others = _floored((self.variance * (count - 1) - squares) / (count - 2))
            else:
                others = scaled * width.clamp_min(NO_WIDTH)
            left_out = squares * (count / (count - 1)) / (others * (1 + 1 / (count - 1)))
            self.distances[size] = log_clipped(left_out).mean(-1)
            widths.append(width)
        self.widths = torch.stack(widths)
        standardised = deviations / self.variance.sqrt()
        paired = standardised[:MOST_PAIRED]
        self.gram = paired @ paired.T / paired.shape[-1]
        self.share = _share(standardised[list(halved)], coordinates.get(largest // 2), self.variance)


def _floored(variance: Tensor) -> Tensor:
    """Return the variances of a part's channels, (..., channels), with a lower limit relative to their median."""
    least = variance.median(-1, keepdim=True).values
    return torch.maximum(variance, least * LEAST_SHARE).clamp_min(1e-30)


def _share(wholes: Tensor, halves: Tensor | None, variance: Tensor) -> Tensor:
    """Return the share of the variance that the mean of a batch's two halves has in common with the batch.

    Args:
        wholes: Standardised deviations of batches, (pairs, channels).
        halves: Coordinates of their halves, two by two, (2 pairs, channels).
        variance: The variance between batches, (channels,).
    """
    pairs, common = len(wholes), 0.0
    if halves is not None and pairs > 1:
        means = halves.unflatten(0, (-1, 2)).mean(1)
        products = wholes * (means - means.mean(0)) / variance.sqrt()
        common = products.mean(-1).sum() * (pairs / (pairs - 1))
    else:
        pairs = 0
    return ((common + wholes.new_tensor(PRIOR_PAIRS)) / (pairs + PRIOR_PAIRS)).clamp(0, 1)


def _log_moments(distances: Tensor) -> Tensor:
    """Return mean, standard deviation and skewness of the logarithm of distances (batches, parts), (parts, 3)."""
    logs = distances.log()
    mean, std, count = logs.mean(0), logs.std(0), len(logs)
    shape = gamma_shape(std)
    gamma_skew = -(shape**-2 + shape**-3) / std**3
    seen = ((logs - mean) / std).pow(3).mean(0)
    skew = (count * seen + PRIOR_BATCHES * gamma_skew) / (count + PRIOR_BATCHES)
    # Parts that do not vary have no distances. They get zeros, which can be saved to files.
    return torch.stack([mean, std, skew], -1).nan_to_num(0, 0, 0)


def _smoothed(logs: Tensor, sizes: Sequence[int], counts: Sequence[int]) -> Tensor:
    """Return moments of log distances per size, smoothed with neighbouring sizes that have at least as many batches.

    Sizes of one or two examples are left out.
    """
    smooth = logs.clone()
    for i in range(1, len(sizes) - 1):
        if sizes[i] <= DEGENERATE_SIZE:
            continue
        low = i - 1 if sizes[i - 1] > DEGENERATE_SIZE else i + 1
        share = math.log(sizes[i] / sizes[low]) / math.log(sizes[i + 1] / sizes[low]) if low < i else 1.0
        between = torch.lerp(logs[low], logs[i + 1], share)
        weight = counts[i] / (counts[i] + min(counts[low], counts[i + 1]))
        seen = (logs[[low, i, i + 1], :, 1] > 0).all(0)[:, None]
        smooth[i] = torch.where(seen, torch.lerp(between, logs[i], weight), logs[i])
    return smooth


def _limits(gram: Tensor) -> Tensor:
    """Return variance and third cumulant of the quadratic form in normal variables with these inner products.

    Only products of different batches count. Products of a batch with itself would add the batches' kurtosis.
    """
    count = len(gram)
    off = gram - gram.diag().diag()
    variance = 2 * off.square().sum() / (count * (count - 1))
    third = 8 * ((off @ off) * off).sum() / (count * (count - 1) * (count - 2))
    return torch.stack([variance, third.clamp_min(0)])
