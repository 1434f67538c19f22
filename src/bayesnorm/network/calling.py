"""Call a network: convert and check its inputs, explain its errors, select its output, and compare two outputs.

On a CPU, convolutions of images are faster in the channels-last layout, which is used if the network supports it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..errors import BayesNormError, InputError, NetworkError
from .copying import private_copy
from .several import run_forward

Result = TypeVar("Result")

# Numbers per example above which an example is large: those of an image of 300 x 300 pixels.
LARGE_ROW = 2**18

# Height and width of the corner of a large image: enough for networks that pool five times.
CORNER = 96


def as_tensor(value: Any, name: str) -> Tensor:
    """Return a tensor, NumPy array, data frame or nested list of numbers as a tensor with at least one example."""
    if not isinstance(value, Tensor):
        if hasattr(value, "to_numpy"):
            value = value.to_numpy()
        try:
            array = np.asarray(value)
        except Exception as error:
            raise InputError(
                f"{name}: {type(value).__name__} cannot be converted to an array ({error}). Pass a tensor."
            ) from error
        if array.dtype.kind not in "biuf":
            raise InputError(
                f"{name} has dtype {array.dtype} ({type(value).__name__}). Pass a tensor or an array of numbers."
            )
        if isinstance(value, np.memmap):
            array = _as_writable(array)  # torch refuses read-only arrays, and a copy would need memory
        if not array.dtype.isnative:  # torch has only the machine's byte order
            array = array.astype(array.dtype.newbyteorder("="))
        if not array.flags.writeable or any(stride < 0 for stride in array.strides):
            array = array.copy()
        value = torch.from_numpy(np.ascontiguousarray(array)) if array.ndim else torch.tensor(array.item())
    if value.layout is not torch.strided:
        raise InputError(f"{name} is a {value.layout} tensor. Pass a dense one, such as {name}.to_dense().")
    if value.is_complex():
        raise InputError(f"{name} is complex ({value.dtype}). Pass real numbers.")
    if value.dim() == 0 or value.shape[0] == 0:
        raise InputError(f"{name} has shape {tuple(value.shape)}. Pass at least one example.")
    return value


class _Shared:
    """An array at the place of another one, without its flag for read-only data."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.__array_interface__ = array, dict(array.__array_interface__)
        self.__array_interface__["data"] = (array.__array_interface__["data"][0], False)


def _as_writable(array: np.ndarray) -> np.ndarray:
    """Return a view of an array that may be written to, which nobody does."""
    return np.asarray(_Shared(array))


def as_input(value: Any, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return `value` as network input: floating numbers get the network's dtype, integers keep theirs."""
    tensor = as_tensor(value, name)
    if tensor.device.type == "meta":
        raise InputError(f"{name} is on the meta device and holds no values. Pass a tensor on {device}.")
    if tensor.is_floating_point():
        # Numbers too large for the dtype become infinite. They are checked where they are, before they move.
        tensor = tensor.detach().to(dtype)
        if tensor.numel():
            low, high = torch.aminmax(tensor)
            if tensor.is_cuda and _delayed.checks is not None:
                _delayed.checks.append((high - low, tensor, name))
            elif not (math.isfinite(low) and math.isfinite(high)):
                _require_finite(tensor, name)
    return tensor.to(device)


class _Delayed(threading.local):
    """The checks of this thread that are not read yet: a number that shows whether a tensor is finite, and its name."""

    checks: list[tuple[Tensor, Tensor, str]] | None = None


_delayed = _Delayed()


@contextlib.contextmanager
def delayed_checks() -> Iterator[Callable[[Tensor | bool], bool]]:
    """Read the checks of inputs on a GPU later, together with one of the outputs: the host waits once, not twice.

    Gives a function that returns whether a check of the outputs passes. If that of an input does not, an `InputError`
    is raised, also instead of an error that the input caused.
    """
    outer, checks = _delayed.checks, list[tuple[Tensor, Tensor, str]]()

    def require_inputs() -> None:
        while checks:
            _, tensor, name = checks.pop()
            _require_finite(tensor, name)

    def passed(check: Tensor | bool) -> bool:
        if not checks:
            return bool(check)
        device = checks[0][0].device
        results = [torch.as_tensor(check), *(torch.isfinite(spread) for spread, _, _ in checks)]
        if bool(torch.stack([result.to(device) for result in results]).all()):
            checks.clear()
            return True
        require_inputs()
        return bool(check)

    _delayed.checks = checks
    try:
        yield passed
    finally:
        _delayed.checks = outer
        require_inputs()


def _require_finite(tensor: Tensor, name: str) -> None:
    """Refuse examples with NaN or infinity; the error lists them."""
    bad = ~torch.isfinite(tensor).reshape(len(tensor), tensor.shape[1:].numel())
    if bool(bad.any()):
        where = numbered("row", bad.any(1).nonzero().flatten().tolist())
        raise InputError(
            f"{name} has {int(bad.sum())} NaN or infinite values out of {tensor.numel()}, in {where}. Impute or drop "
            "those rows."
        )


def numbered(what: str, numbers: Sequence[int]) -> str:
    """Return up to a few numbers of rows or other things for a message: "rows 3, 17, 20 and 5 more"."""
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    shown, rest = (numbers[:-1], numbers[-1]) if len(numbers) <= 4 else (numbers[:3], f"{len(numbers) - 3} more")
    return f"{what}s {', '.join(map(str, shown))} and {rest}"


def call_network(network: Callable[[Tensor], Any], x: Tensor, argument: str) -> Any:
    """Return `network(x)`; if the forward fails, the error names the argument of `x` and its shape."""
    with forward_errors_explained(x, argument):
        return run_forward(network, x)


def called_modules(network: nn.Module, modules: Mapping[str, nn.Module], x: Tensor) -> list[str]:
    """Return the names of the modules that a forward pass over training examples calls, one for every call."""
    calls: list[str] = []
    handles = [
        module.register_forward_pre_hook(lambda _module, _args, name=name: calls.append(name))
        for name, module in modules.items()
    ]
    try:
        call_network(network, x.clone(), "train_data")
    finally:
        for handle in handles:
            handle.remove()
    return calls


@contextlib.contextmanager
def forward_errors_explained(x: Tensor, argument: str, shape: tuple[int, ...] | None = None) -> Iterator[None]:
    """Explain an error of the network's forward by naming the argument of `x` and its shape."""
    try:
        yield
    except BayesNormError:
        raise
    except Exception as error:
        raise InputError(
            f"{argument}: the network's forward failed on input of shape {tuple(shape or x.shape)} and {x.dtype}: "
            f"{type(error).__name__}: {error}. {_advice(error)}"
        ) from error


def _advice(error: Exception) -> str:
    if "required positional argument" in str(error) or "required keyword-only argument" in str(error):
        return "Pass several inputs as a tuple or a dict, and arguments that are no inputs with forward_kwargs=."
    return "Pass input of the same kind as in training."


def with_small_images(run: Callable[[Tensor], Result], x: Tensor) -> Result:
    """Return `run(x)`, or the result for a corner of large images if the network accepts it.

    Use it for facts about a network that do not depend on the image size: whole images would need much more memory.
    """
    if x.dim() == 4 and x[0].numel() > LARGE_ROW:
        with contextlib.suppress(InputError):
            return run(x[..., :CORNER, :CORNER])
    return run(x)


@contextlib.contextmanager
def renamed_argument(inner: str, outer: str) -> Iterator[None]:
    """Rename an argument in error messages to the name that the caller knows."""
    try:
        yield
    except InputError as error:
        if not str(error).startswith((f"{inner}: ", f"{inner} ")):
            raise
        raise InputError(outer + str(error).removeprefix(inner)) from error


def select_output(result: Any, output: str | int | None, rows: int) -> Tensor:
    """Return the chosen entry of a network's output; refuse one without one entry per input.

    Args:
        result: The output of the network: a tensor, or entries by name or position.
        output: The name or position of an entry, or a path of several such as "heads.depth"; None for a tensor.
        rows: The number of inputs.
    """
    if not isinstance(result, Tensor):
        result = entry_at(result, output)
    if result.dim() == 0 or result.shape[0] != rows:
        raise NetworkError(
            f"model: it returned shape {tuple(result.shape)} for {rows} inputs. The first axis must have one entry "
            "per input."
        )
    return cast(Tensor, result)


def entry_at(result: Any, output: str | int | None) -> Tensor:
    """Return the tensor at a name, a position, or a path of names and positions with dots between them."""
    kind, entries, path = type(result).__name__, output_entries(result), [output]
    if isinstance(output, str) and output not in entries:
        path = [int(part) if part.isdigit() else part for part in output.split(".")]
    for part in path:
        entries = output_entries(result)
        if isinstance(part, int) and part not in entries and -len(entries) <= part < len(entries):
            part = list(entries)[part]  # a position among names
        result = entries.get(part)
    if isinstance(result, Tensor):
        return result
    entries = output_entries(result) or entries
    raise NetworkError(
        f"output={output!r}, but the network returns {kind} with entries {', '.join(map(repr, entries)) or 'unknown'}. "
        "Choose one of them with output=."
    )


def output_entries(result: Any) -> dict[Any, Any]:
    """Return the entries of a dict, dataclass or named tuple by name, and of other tuples by position."""
    if dataclasses.is_dataclass(result) and not isinstance(result, Mapping):
        return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return dict(zip(result._fields, result, strict=True))
    if isinstance(result, tuple | list):
        return dict(enumerate(result))
    return dict(result) if isinstance(result, Mapping) else {}


def channels_last(x: Tensor) -> Tensor:
    """Return images with a pixel's channels side by side in memory."""
    return x.contiguous(memory_format=torch.channels_last)


def may_gain_from_channels_last(network: nn.Module, x: Tensor) -> bool:
    """Return whether a network may run faster on inputs like `x` if they are channels-last."""
    images = x.dim() == 4 and x.device.type == "cpu" and x.is_floating_point()
    return images and any(isinstance(module, nn.Conv2d) for _, module in network.named_modules())


def agrees(run: Callable[[], Tensor], expected: Tensor) -> bool:
    """Return whether `run` gives `expected` up to rounding, without an error or a warning."""
    with errors_and_warnings_ignored():
        return agree(run(), expected)
    return False


def agree(outputs: Tensor, expected: Tensor) -> bool:
    """Return whether outputs are equal up to rounding."""
    return bool(largest_difference(outputs, expected) <= 1e-3 * expected.abs().max())


@contextlib.contextmanager
def errors_and_warnings_ignored() -> Iterator[None]:
    """End the block at its first error or warning, without any."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def largest_difference(outputs: Tensor, expected: Tensor) -> float:
    """Return the largest difference of outputs (batch, *out); for maps, the mean over pixels.

    If a network unpools, rounding decides between nearly equal maxima, so single pixels may differ a lot.
    """
    same = (outputs == expected) | (outputs.isnan() & expected.isnan())
    wide = torch.promote_types(torch.promote_types(outputs.dtype, expected.dtype), torch.float32)
    off = torch.where(same, 0.0, (outputs.to(wide) - expected.to(wide)).abs())
    return float((off.flatten(2).mean(2) if off.dim() > 2 else off).max())


@torch.no_grad()
def multiply_adds(network: nn.Module, x: Tensor) -> int:
    """Return the number of multiply-adds of linear and convolutional layers for one example of `x`."""
    watched, total = private_copy(network), 0

    def count(module: Any, _: Any, output: Tensor) -> None:
        nonlocal total
        total += output[0].numel() * module.weight[0].numel()

    for _, module in watched.named_modules():
        if isinstance(module, nn.Linear | _ConvNd):
            module.register_forward_hook(count)
    call_network(watched, x[:1].clone(), "x")
    return total
