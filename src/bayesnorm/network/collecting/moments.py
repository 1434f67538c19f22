"""Compute moments of the inputs of batch-norm layers; all batch means and variances are computed here.

A layer's input h is (examples, channels, *pixels). Several inputs, such as those of many batches,
have further axes in front, `leading` of them; moments are then (*leading, channels). Half precision is raised
to single.

In a convolution an example's pixels are not independent of each other. A batch's mean and variance average over the
examples' own averages of h and of (h - mean)^2, so the spread of these over examples determines how much batches
differ.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Number of entries of h that are squared at a time on a CPU.
CPU_ELEMENTS = 2**19


class Moments(NamedTuple):
    """Moments over examples, each (*leading, channels).

    Args:
        mean: Mean of h.
        var: Biased variance of h.
        mean_var: Variance over examples of an example's average of h; without pixels the same as `var`.
        square_var: Variance over examples of an example's average of (h - mean)^2; without pixels m4 - var^2.
    """

    mean: Tensor
    var: Tensor
    mean_var: Tensor
    square_var: Tensor


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype for statistics: at least single precision, as in batch norm itself."""
    return torch.promote_types(dtype, torch.float32)


def mean_and_var(h: Tensor, leading: int = 0) -> tuple[Tensor, Tensor]:
    """Return means and biased variances over examples and pixels, each (*leading, channels), without derivatives.

    Args:
        h: The input of a layer, (*leading, examples, channels, *pixels).
        leading: Number of axes in front of the examples.
    """
    h = h.to(statistics_dtype(h.dtype))
    over = [leading, *range(leading + 2, h.dim())]
    if h.device.type == "cuda":
        var, mean = torch.var_mean(h, over, correction=0)
        return mean, var
    # Two plain passes: on a CPU, a tenth of the time of torch.var_mean.
    mean = h.mean(over, keepdim=True)
    first, *others = _parts(h, leading)
    squares = (first - mean).square_().sum(over)
    for part in others:
        squares += (part - mean).square_().sum(over)
    return mean.flatten(leading), squares.div_(h.numel() // mean.numel())


def row_moments(h: Tensor, leading: int = 0) -> Moments:
    """Return mean and variance, and the spread of the examples' contributions to both; all differentiable.

    Args:
        h: The input of a layer, (*leading, examples, channels, *pixels).
        leading: Number of axes in front of the examples.
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
    """Return what `mean_and_var` returns, and each example's averages of h - mean and its square, (examples, channels).

    Args:
        h: The input of a layer, (examples, channels, *pixels).
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
    """Return sums for `moments_from_sums`, which may be added up over batches: (5, channels), double.

    These are the sums over examples of a, b, a^2, b^2 and ab, where a and b are an example's averages of h - about and
    of its square.

    Args:
        mean: The batch's mean, (channels,).
        deviations: Every example's average of h - mean, (examples, channels).
        squares: Every example's average of (h - mean)^2, (examples, channels).
        about: Numbers near the means, the same for all batches, (channels,); they avoid rounding errors in the sums.
    """
    shift, deviations = mean.double() - about.double(), deviations.double()
    a = deviations + shift
    b = squares.double() + 2 * deviations * shift + shift.square()
    return torch.stack([part.sum(0) for part in (a, b, a.square(), b.square(), a * b)])


def moments_from_sums(sums: Tensor, rows: int, about: Tensor) -> Moments:
    """Return the moments of all examples of many batches, each (channels,), double.

    Args:
        sums: The results of `row_sums`, added up over batches, (5, channels).
        rows: Number of examples in the sums.
        about: The numbers that were subtracted from h, (channels,).
    """
    a, b, aa, bb, ab = sums / rows
    mean_var = (aa - a * a).clamp_min(0)
    square_var = (bb - b * b - 4 * a * (ab - a * b) + 4 * a * a * mean_var).clamp_min(0)
    return Moments(a + about.double(), (b - a * a).clamp_min(0), mean_var, square_var)


def _parts(h: Tensor, axis: int = 0) -> tuple[Tensor, ...]:
    """Split examples into parts whose squares fit into a CPU's cache.

    Allocating memory for the squares of all of `h` would cost more than the arithmetic.
    """
    if h.device.type != "cpu":
        return (h,)
    return h.split(max(1, CPU_ELEMENTS * h.shape[axis] // max(1, h.numel())), axis)
