"""Use the channels-last layout for images on a CPU, where convolutions are then faster, if the network supports it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn


def channels_last(x: Tensor) -> Tensor:
    """Return images with a pixel's channels side by side in memory."""
    return x.contiguous(memory_format=torch.channels_last)


def may_gain_from_channels_last(network: nn.Module, x: Tensor) -> bool:
    """Return whether a network may run faster on inputs like `x` if they are channels-last."""
    images = x.dim() == 4 and x.device.type == "cpu" and x.is_floating_point()
    return images and any(isinstance(module, nn.Conv2d) for _, module in network.named_modules())


def agrees(run: Callable[[], Tensor], expected: Tensor) -> bool:
    """Return whether `run` gives `expected` up to rounding, without an error or a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outputs = run()
    except Exception:
        return False
    return bool(largest_difference(outputs, expected) <= 1e-3 * expected.abs().max())


def largest_difference(outputs: Tensor, expected: Tensor) -> float:
    """Return the largest difference of outputs (batch, *out); for maps, the mean over pixels.

    If a network unpools, rounding decides between nearly equal maxima, so single pixels may differ a lot.
    """
    same = (outputs == expected) | (outputs.isnan() & expected.isnan())
    wide = torch.promote_types(torch.promote_types(outputs.dtype, expected.dtype), torch.float32)
    off = torch.where(same, 0.0, (outputs.to(wide) - expected.to(wide)).abs())
    return float((off.flatten(2).mean(2) if off.dim() > 2 else off).max())
