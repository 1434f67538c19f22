"""Moments of what comes into a batch-norm layer: the one place where a batch's mean and variance are computed.

A layer's input h is (rows, channels, *pixels). Many of them, such as those of stacked networks or of many batches, have
further axes in front, `leading` of them; moments are then (*leading, channels). Half precision is raised to single.

In a convolution a row's pixels are not independent of one another: what a batch's mean and variance average over is the
rows' own averages of h and of (h - mean)^2, so it is the spread of those over rows that tells how much batches differ.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# How many entries of h are squared at a time on a CPU.
CPU_ELEMENTS = 2**19


class Moments(NamedTuple):
    """Moments over rows, each (*leading, channels).

    Args:
        mean: Mean of h.
        var: Biased variance of h.
        mean_var: Over rows, variance of a row's average of h; without pixels the same as `var`.
        square_var: Over rows, variance of a row's average of (h - mean)^2; without pixels m4 - var^2.
    """

    mean: Tensor
    var: Tensor
    mean_var: Tensor
    square_var: Tensor


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to take statistics in: at least single precision, as in batch norm itself."""
    return torch.promote_types(dtype, torch.float32)


def mean_and_var(h: Tensor, leading: int = 0) -> tuple[Tensor, Tensor]:
    """Return means and biased variances over rows and pixels, each (*leading, channels); not for derivatives.

    Args:
        h: What comes into a layer, (*leading, rows, channels, *pixels).
        leading: How many axes there are in front of the rows.
    """
    h = h.to(statistics_dtype(h.dtype))
    over = [leading, *range(leading + 2, h.dim())]
    if h.device.type == "cuda":
        var, mean = torch.var_mean(h, over, correction=0)
        return mean, var
    # Two plain passes: on a CPU, a tenth of torch.var_mean's time.
    mean = h.mean(over, keepdim=True)
    first, *others = _parts(h, leading)
    squares = (first - mean).square_().sum(over)
    for part in others:
        squares += (part - mean).square_().sum(over)
    return mean.flatten(leading), squares.div_(h.numel() // mean.numel())


def row_moments(h: Tensor, leading: int = 0) -> Moments:
    """Return mean and variance, and how much rows differ in what they contribute to both; all of it differentiable.

    Args:
        h: What comes into a layer, (*leading, rows, channels, *pixels).
        leading: How many axes there are in front of the rows.
    """
    h = h.to(statistics_dtype(h.dtype))
    pixels = list(range(leading + 2, h.dim()))
    averages = h.mean(pixels) if pixels else h
    mean = averages.mean(leading, keepdim=True)
    squares = (h - mean.view(*mean.shape, *(1 for _ in pixels))).square()
    squares = squares.mean(pixels) if pixels else squares
    var = squares.mean(leading, keepdim=True)
    return Moments(
        mean.squeeze(leading),
        var.squeeze(leading),
        (averages - mean).square().mean(leading),
        (squares - var).square().mean(leading),
    )


def row_averages(h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `mean_and_var` gives, and every row's averages of h - mean and of its square, each (rows, channels).

    Args:
        h: What comes into a layer, (rows, channels, *pixels).
    """
    h = (h.unsqueeze(2) if h.dim() == 2 else h.flatten(2)).to(statistics_dtype(h.dtype))
    mean = h.mean([0, 2])
    averages = []
    for part in _parts(h):
        deviation = part - mean[:, None]
        averages.append((deviation.mean(2), deviation.square_().mean(2)))
    deviations, squares = (torch.cat(parts) for parts in zip(*averages, strict=True))
    return mean, squares.mean(0), deviations, squares


def row_sums(mean: Tensor, deviations: Tensor, squares: Tensor, about: Tensor) -> Tensor:
    """Return what `moments_from_sums` needs of some rows, which may be added up over batches: (5, channels), double.

    These are the sums over rows of a, b, a^2, b^2 and ab, where a and b are a row's averages of h - about and of its
    square.

    Args:
        mean: The batch's mean, (channels,).
        deviations: Every row's average of h - mean, (rows, channels).
        squares: Every row's average of (h - mean)^2, (rows, channels).
        about: Numbers near the means, the same for all batches, (channels,): sums of squares about them lose no digits.
    """
    shift, deviations = mean.double() - about.double(), deviations.double()
    a = deviations + shift
    b = squares.double() + 2 * deviations * shift + shift.square()
    return torch.stack([part.sum(0) for part in (a, b, a.square(), b.square(), a * b)])


def moments_from_sums(sums: Tensor, rows: int, about: Tensor) -> Moments:
    """Return the moments of all rows of many batches, each (channels,), double.

    Args:
        sums: What `row_sums` gives, added up over batches, (5, channels).
        rows: How many rows they are sums of.
        about: What h was compared with, (channels,).
    """
    a, b, aa, bb, ab = sums / rows
    mean_var = (aa - a * a).clamp_min(0)
    square_var = (bb - b * b - 4 * a * (ab - a * b) + 4 * a * a * mean_var).clamp_min(0)
    return Moments(a + about.double(), (b - a * a).clamp_min(0), mean_var, square_var)


def _parts(h: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """Split rows into parts whose squares can take their place in a CPU's cache.

    New memory for as much as all of `h` holds would cost more than the arithmetic.
    """
    if h.device.type != "cpu":
        return (h,)
    return h.split(max(1, CPU_ELEMENTS * h.shape[axis] // max(1, h.numel())), axis)
