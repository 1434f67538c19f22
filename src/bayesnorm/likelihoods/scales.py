"""Numbers of a likelihood (one, or one per entry of an output axis), and limits for predicted ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..arguments import as_whole
from ..errors import BayesNormError, InputError, NotFiniteError
from ..predictive import largest_number

# Log standard deviations and log scales up to this magnitude are used unchanged: 3e-7 to 3e6.
LOG_STD_LIMIT = 15.0

# Larger ones approach this bound (2e-9 to 5e8), and the slope is positive everywhere.
LOG_STD_BOUND = 20.0


def positive_numbers(name: str, value: Any) -> float | tuple[float, ...]:
    """Return one positive number or several as plain numbers, or raise an error."""
    value = value.tolist() if hasattr(value, "tolist") else value  # arrays and tensors
    several = isinstance(value, Sequence) and not isinstance(value, str)
    values = tuple(value) if several else (value,)
    try:
        numbers = tuple(float(value) for value in values)
    except (OverflowError, TypeError, ValueError) as error:
        raise BayesNormError(f"{name} must be positive numbers, got {value!r}.") from error
    if not numbers or not all(math.isfinite(value) and value > 0 for value in numbers):
        raise BayesNormError(f"{name} must be positive, finite numbers, got {value!r}.")
    return numbers if several else numbers[0]


def require_moderate(
    name: str, value: float | tuple[float, ...], dtype: torch.dtype, *, power: int = 1, room: float = 0.0
) -> None:
    """Raise an error if the noise is so extreme that its variance is not a finite number in this dtype.

    Args:
        name: Name of the argument.
        value: The noise, one number or several.
        dtype: The dtype of predictions.
        power: The power of the noise's scale that `value` is.
        room: How much the network may add to the logarithm of the scale.
    """
    most = abs(power) * (math.log(largest_number(dtype)) - room)
    number = max(value if isinstance(value, tuple) else (value,), key=lambda one: abs(math.log(one)))
    if abs(math.log(number)) > most:
        raise NotFiniteError(
            f"{name} is {number:g}, which is too extreme for predictions in {dtype}. Use numbers from "
            f"{math.exp(-most):.0e} to {math.exp(most):.0e}."
        )


def require_axis(axis: Any) -> None:
    """Raise an error unless `axis` is an output axis of (batch, *out)."""
    if not as_whole(axis):  # axis 0 is the batch
        raise BayesNormError(f"axis must be -1 (the last) or 1 (channels of maps), got {axis!r}.")


def plain_numbers(noise: Tensor) -> float | tuple[float, ...]:
    """Return a tensor with zero or one axis as plain numbers."""
    numbers = noise.double().tolist()
    return tuple(numbers) if isinstance(numbers, list) else numbers


def output_axis(f: Tensor, axis: int) -> int:
    """Return the position in outputs (n, batch, *out) of the axis `axis` of (batch, *out)."""
    position = axis + 1 if axis > 0 else f.dim() + axis
    if not 2 <= position < f.dim():
        raise InputError(
            f"Outputs of shape {tuple(f.shape[1:])} have no axis {axis} besides the batch axis. Set another axis=, or "
            "return outputs of shape (batch, outputs)."
        )
    return position


def on_outputs(name: str, numbers: float | tuple[float, ...] | Tensor, f: Tensor, axis: int = -1) -> Tensor:
    """Return numbers as a tensor that broadcasts over outputs (n, batch, *out); several numbers lie along `axis`."""
    tensor = beside(torch.as_tensor(numbers), f)
    if not tensor.dim():
        return tensor
    position = axis + 1 if axis >= 0 else f.dim() + axis
    if not 2 <= position < f.dim() or f.shape[position] != len(tensor):
        where = "the last axis" if axis == -1 else f"axis {axis}"
        raise InputError(
            f"{name} has {len(tensor)} numbers, but the outputs have shape {tuple(f.shape[1:])}. Pass one number, or "
            f"one per entry of {where}."
        )
    return tensor.view(-1, *[1] * (f.dim() - 1 - position))


def beside(numbers: Tensor, f: Tensor) -> Tensor:
    """Return numbers in the precision and on the device of `f`, without waiting for a GPU if it is one CPU number."""
    if numbers.dim() or numbers.requires_grad or numbers.device == f.device or numbers.device.type != "cpu":
        return numbers.to(f)
    return f.new_full((), float(numbers))


def bounded(log: Tensor, limit: float, bound: float) -> Tensor:
    """Return `log` if its magnitude is at most `limit`; beyond, it approaches `bound` without reaching it.

    The slope decreases from 1 to 0 as 1 / distance^2, so gradients can still bring values back from there.
    """
    # The limits are smaller for narrow dtypes: the square of exp(limit) must be finite.
    share = min(1.0, 0.45 * math.log(torch.finfo(log.dtype).max) / LOG_STD_BOUND)
    limit, room = limit * share, (bound - limit) * share
    over = (log.abs() - limit).clamp_min(0)
    return log.clamp(-limit, limit) + log.sign() * over / (1 + over / room)


def like_outputs(y: Tensor, f: Tensor) -> Tensor:
    """Return targets in the shape of the outputs; only axes of length 1 may be missing."""
    if y.shape == f.shape:
        return y
    if not same_places(y, f):
        raise InputError(
            f"y has shape {tuple(y.shape)}, but the outputs have shape {tuple(f.shape)}. Pass one target per output."
        )
    return y.reshape(f.shape)


def same_places(y: Tensor, f: Tensor) -> bool:
    """Return whether both have the same batch size and the same axes in the same order, ignoring axes of length 1."""
    sizes = ([size for size in tensor.shape[1:] if size != 1] for tensor in (y, f))
    return y.shape[:1] == f.shape[:1] and next(sizes) == next(sizes)


def per_output(error: Tensor, axis: int, noise: Tensor) -> Tensor:
    """Return the mean error per output if examples have several outputs, otherwise the mean over everything.

    NaN is ignored. Maps and sequences get one noise level for all channels, unless there is one for each already.
    """
    several = (error.dim() == 2 or noise.dim() > 0) and error.shape[axis] > 1
    others = [other for other in range(error.dim()) if other != axis % error.dim()]
    mean = (error.nanmean(others) if several else error.nanmean()).double()
    if bool(mean.isnan().any()):
        raise InputError("y has only NaN for at least one output. Pass at least one target per output that is not NaN.")
    if float(mean.max()) > 1e-3 * largest_number(error.dtype) ** 2:  # calibrated noise may be a hundred times larger
        raise NotFiniteError(
            f"y is so far from the predictions that squared errors overflow in {error.dtype}. Pass targets in the "
            "units that the network was trained with."
        )
    return mean.clamp_min(torch.finfo(error.dtype).tiny ** 0.5)


def holds(condition: Tensor) -> bool:
    """Return whether a condition holds, or False if it cannot be checked without waiting (on a GPU, inside `vmap`)."""
    if condition.device.type != "cpu":
        return False
    try:
        return bool(condition)
    except RuntimeError:
        return False
