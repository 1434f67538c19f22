"""Weights rounded to their posterior precision and packed into bytes.

A tensor's values are multiples of one step, value = step (lowest + n), with whole n from 0 to 2^bits - 1. Rounding
moves a value by at most half a step. `step` is a share of the root of the harmonic mean of the posterior variances. So
the mean squared rounding error, in units of each weight's variance, is share^2 / 12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# The bits of a float32 mantissa; more bits would store nothing more.
MOST_BITS = 24


@dataclass(frozen=True)
class Precision:
    """How the values of a tensor are stored.

    Args:
        bits: Bits per value.
        step: The distance between neighbouring values.
        lowest: The lowest value, in steps.
    """

    bits: int
    step: float
    lowest: int

    @classmethod
    def from_variances(cls, values: Tensor, variances: Tensor, share: float) -> Precision:
        """Return the precision for weights with these means and variances; the step is a share of their deviation."""
        positive = variances[variances > 0].double()  # weights that were set to zero have variance 0
        return cls.of_step(values, share * float((1 / positive).mean().rsqrt()) if len(positive) else math.inf)

    @classmethod
    def of_step(cls, values: Tensor, step: float) -> Precision:
        """Return the precision for values with this step, or with the nearest step that can be stored."""
        low, high = float(values.min()), float(values.max())
        # The step is limited to what MOST_BITS can store, and to the largest value.
        largest = max(abs(low), abs(high)) or 1.0
        step = min(max(step, largest / 2 ** (MOST_BITS - 2)), largest)
        return cls._between(round(low / step), round(high / step), step)

    @classmethod
    def of_whole(cls, values: Tensor) -> Precision:
        """Return the precision for whole numbers."""
        return cls._between(int(values.min()), int(values.max()), 1.0)

    @classmethod
    def _between(cls, lowest: int, highest: int, step: float) -> Precision:
        return cls(max(1, math.ceil(math.log2(highest - lowest + 1))), step, lowest)

    def packed(self, values: Tensor) -> Tensor:
        """Return values as bytes."""
        whole = torch.round(values.detach().cpu().double() / self.step).long().flatten().numpy() - self.lowest
        bits = (whole[:, None] >> np.arange(self.bits)) & 1
        return torch.from_numpy(np.packbits(bits.astype(np.uint8)))

    def unpacked(self, packed: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return the unpacked values in this shape, as float64."""
        count = math.prod(shape)
        bits = np.unpackbits(packed.numpy(), count=count * self.bits).reshape(count, self.bits).astype(np.int64)
        whole = (bits << np.arange(self.bits)).sum(1) + self.lowest
        return torch.from_numpy(self.step * whole.astype(np.float64)).view(shape)

    def rounded(self, values: Tensor) -> Tensor:
        """Return the values after packing and unpacking."""
        return (self.step * torch.round(values.double() / self.step)).to(values.dtype)

    def holds(self, values: Tensor) -> bool:
        """Return whether values are the same after packing and unpacking."""
        whole = torch.round(values.double() / self.step) - self.lowest
        within = bool(((whole >= 0) & (whole < 2**self.bits)).all())
        return within and torch.equal(self.rounded(values), values)

    def size(self, shape: tuple[int, ...]) -> int:
        """Return the number of bytes for values of this shape."""
        return -(-self.bits * math.prod(shape) // 8)
