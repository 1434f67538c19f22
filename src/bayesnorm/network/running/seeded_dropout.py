"""Make dropout masks a function of a seed, so that a sampled mask is state like any other.

An entry of a mask is a hash, compared with the rate. The hash combines the seed, the number of earlier calls of the
layer in this forward pass, the unit, and, if masks differ between examples, the example. This is integer arithmetic per
entry. It gives the same result under `vmap`, in a loop, for all examples or some, and on every device. No generator is
used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ..layers import DROPOUT_KINDS, DropoutKind, find_dropout

# Seeds are whole numbers below this; a negative seed switches dropout off.
SEEDS = 2**62

# -(scale * alpha) of SELU: the value of a unit dropped by alpha dropout, before mean and variance are restored.
_ALPHA = 1.7580993408473766

# Factors of a nearly unbiased 32-bit finaliser (Wellons' "lowbias32"), as signed numbers.
_FACTOR_1, _FACTOR_2 = 0x7FEB352D, 0x846CA68B - 2**32
# Offsets that keep the hashes of units, calls and rows apart.
_UNIT, _CALL, _ROW = 0x3C6EF372, 0x9E3779B9 - 2**32, 0x2545F491


Axes = tuple[int | None, ...]
"""Which axis of a layer's input holds the rows, for each of its calls in a pass; None where none does."""


class SeededDropout(_DropoutNd):
    """A dropout layer in evaluation mode whose mask is determined by its `seed`; made by `seed_dropout`."""

    seed: Tensor
    kind: DropoutKind
    consistent: bool  # whether all examples share a mask
    axes: Axes
    calls: int  # number of calls in this forward pass; every call gets another mask
    first_row: int  # index in the whole input of the first example of this block
    _units: dict[Any, Tensor]  # hashes of units, by number of units, call and device

    def forward(self, input: Tensor) -> Tensor:
        # Never in place, even if the layer was: under vmap the input may lack the axis of samples that the mask has.
        number, self.calls = self.calls, self.calls + 1
        off = self.seed < 0
        dropped = self._dropped(input, number, off).to(input.dtype)
        if not self.kind.alpha:
            gain = _either(off, 1.0, 1 / (1 - self.p) if self.p < 1 else 0.0, input)
            return input * torch.addcmul(gain, dropped, gain)
        factor = 1 / math.sqrt((_ALPHA**2 * self.p + 1) * (1 - self.p)) if self.p < 1 else 0.0
        gain, shift = _either(off, 1.0, factor, input), _either(off, 0.0, _ALPHA * factor * self.p, input)
        shift = torch.add(shift, dropped, alpha=_ALPHA * factor)
        return torch.addcmul(shift, input, torch.addcmul(gain, dropped, gain))

    def _dropped(self, h: Tensor, number: int, off: Tensor) -> Tensor:
        """Return -1 for dropped entries and 0 for others, in a shape that broadcasts to that of `h`."""
        shape = list(h.shape)
        if self.kind.channels:
            named = 1 if h.dim() == self.kind.unbatched else 2
            shape[named:] = [1] * (h.dim() - named)
        axis = self.axes[min(number, len(self.axes) - 1)]
        rows = 0
        if axis is not None:
            rows = shape[axis] if shape[axis] == h.shape[axis] and not self.consistent else 0
            shape[axis] = 1
        low, high = (self.seed & (2**31 - 1)).to(torch.int32), (self.seed >> 31).to(torch.int32)
        if axis is not None and rows:
            lined_up = [rows if i == axis else 1 for i in range(h.dim())]
            row = torch.arange(self.first_row, self.first_row + rows, dtype=torch.int32, device=h.device)
            low = _folded(_keyed(_scrambled(row ^ _ROW), low, high), 16).view(lined_up)
            high = low + high
        units = self._codes(math.prod(shape), number, h.device).view(shape)
        # x < least, by the sign of a difference that cannot overflow; several times faster than a comparison on a CPU.
        least = torch.where(off, -(2**30), round((self.p - 0.5) * 2**31)).to(torch.int32)
        return _keyed(units, low, high).bitwise_right_shift_(1).sub_(least).bitwise_right_shift_(31)

    def _codes(self, count: int, number: int, device: torch.device) -> Tensor:
        """Return the part of the hash that is the same for every sample, (count,)."""
        key = count, number, device
        if key not in self._units:
            if len(self._units) >= 16:  # inputs with ever new shapes
                self._units.clear()
            unit = torch.arange(count, dtype=torch.int32, device=device)
            offset = (number * _CALL + 2**31) % 2**32 - 2**31
            self._units[key] = _scrambled(_scrambled(unit ^ _UNIT) + offset)
        return self._units[key]


class _Restart:
    """Begins a new pass, as a hook of the network: every layer's next call is its first."""

    def __init__(self, layers: list[SeededDropout]) -> None:
        self.layers = layers

    def __call__(self, _network: nn.Module, _args: Any) -> None:
        for layer in self.layers:
            layer.calls = 0


@torch.inference_mode(False)
def seed_dropout(
    network: nn.Module,
    rates: Mapping[str, float],
    consistent: bool,
    axes: Mapping[str, Axes],
    device: torch.device,
) -> dict[str, SeededDropout]:
    """Make dropout layers of a private copy seeded; return them by name. They are off until a seed overrides their own.

    Args:
        network: The copy, in evaluation mode.
        rates: The rate of every layer that is to be seeded; others stay as they are.
        consistent: Whether all rows share a mask.
        axes: Which axes of a layer's input hold the rows, for layers where it is not simply the first.
        device: The network's device.
    """
    layers = find_dropout(network)
    seeded: dict[str, SeededDropout] = {}
    for name, rate in rates.items():
        layer: Any = layers[name]
        kind = DROPOUT_KINDS[type(layer).forward]
        layer.__class__ = SeededDropout  # what else holds this layer, and its hooks, go on working
        layer.kind, layer.p, layer.consistent = kind, rate, consistent
        layer.axes, layer.calls, layer.first_row, layer._units = axes.get(name) or (0,), 0, 0, {}
        layer.register_buffer("seed", torch.full((), -1, device=device), persistent=False)
        seeded[name] = layer
    network.register_forward_pre_hook(_Restart([*seeded.values()]), prepend=True)
    _leave_fast_lanes(network)
    return seeded


def _leave_fast_lanes(network: nn.Module) -> None:
    """Keep torch's own transformer layers from the one fused operation that never calls their dropout."""
    for _, module in network.named_modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False


def _either(off: Tensor, when_off: float, when_on: float, like: Tensor) -> Tensor:
    """Return one of two numbers, in the precision of `like`."""
    one, other = (torch.full((), value, dtype=like.dtype, device=like.device) for value in (when_off, when_on))
    return torch.where(off, one, other)


def _folded(x: Tensor, bits: int) -> Tensor:
    """Return x ^ (x >> bits) in place, with zeros shifted in."""
    return x.bitwise_xor_((x >> bits).bitwise_and_(2 ** (32 - bits) - 1))


def _keyed(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return a hash of x under a key of two numbers, whose high bits are good; a last fold would mend the low ones."""
    return _folded(_folded(x ^ low, 16).mul_(_FACTOR_1).add_(high), 15).mul_(_FACTOR_2)


def _scrambled(x: Tensor) -> Tensor:
    """Return a hash of x, all of whose bits are good."""
    return _folded(_folded(_folded(x.clone(), 16).mul_(_FACTOR_1), 15).mul_(_FACTOR_2), 16)
