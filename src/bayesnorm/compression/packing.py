"""Weights at the precision that their posterior gives them, packed into bytes.

A tensor's values are multiples of one step, value = step (lowest + n), with whole n from 0 to 2^bits - 1. Half a step
is how far a value moves at most, and the posterior says how far each may: `step` is a share of the root of the harmonic
mean of the variances, so that the mean squared shift, in units of each weight's own variance, is share^2 / 12.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# More bits than the float32 that weights come from has in its mantissa would be for nothing.
MOST_BITS = 24


@dataclass(frozen=True)
class Precision:
    """How the values of a tensor are written.

    Args:
        bits: Bits of every value.
        step: The distance between neighbouring values.
        lowest: The lowest value, in steps.
    """

    bits: int
    step: float
    lowest: int

    @classmethod
    def given(cls, values: Tensor, variances: Tensor, share: float) -> Precision:
        """Return the precision that weights of these means and variances need, for a share of their deviations."""
        known = variances[variances > 0].double()  # the others are of weights that were set to zero
        return cls.of_step(values, share * float((1 / known).mean().rsqrt()) if len(known) else math.inf)

    @classmethod
    def of_step(cls, values: Tensor, step: float) -> Precision:
        """Return the precision that values need at a step, or at the next one that can be written."""
        low, high = float(values.min()), float(values.max())
        # Steps that are too small for MOST_BITS, or too large for the values, are of no use.
        largest = max(abs(low), abs(high)) or 1.0
        step = min(max(step, largest / 2 ** (MOST_BITS - 2)), largest)
        return cls._between(round(low / step), round(high / step), step)

    @classmethod
    def of_whole(cls, values: Tensor) -> Precision:
        """Return the precision that whole numbers need."""
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
        """Return the values of a shape that were packed, as float64."""
        count = math.prod(shape)
        bits = np.unpackbits(packed.numpy(), count=count * self.bits).reshape(count, self.bits).astype(np.int64)
        whole = (bits << np.arange(self.bits)).sum(1) + self.lowest
        return torch.from_numpy(self.step * whole.astype(np.float64)).view(shape)

    def rounded(self, values: Tensor) -> Tensor:
        """Return what values become by packing and unpacking."""
        return (self.step * torch.round(values.double() / self.step)).to(values.dtype)

    def holds(self, values: Tensor) -> bool:
        """Return whether values are the same after packing and unpacking."""
        whole = torch.round(values.double() / self.step) - self.lowest
        within = bool(((whole >= 0) & (whole < 2**self.bits)).all())
        return within and torch.equal(self.rounded(values), values)

    def size(self, shape: tuple[int, ...]) -> int:
        """Return how many bytes values of a shape take."""
        return -(-self.bits * math.prod(shape) // 8)
