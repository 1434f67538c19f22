"""Compute moments of the inputs of batch-norm layers, and record those of training batches with derivatives.

All batch means and variances are computed here. A layer's input h is (examples, channels, *pixels). Several inputs,
such as those of many batches, have further axes in front, `leading` of them; moments are then (*leading, channels).
Half precision is raised to single.

In a convolution an example's pixels are not independent of each other. A batch's mean and variance average over the
examples' own averages of h and of (h - mean)^2, so the spread of these over examples determines how much batches
differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...arguments import as_whole
from ...errors import InputError, NetworkError
from ..copying import unwrap
from ..layers import BatchNormLayer, LayerChoice, choose_layers, require_batchnorm

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


@dataclass(frozen=True)
class BatchMoments:
    """Moments of one batch at the C channels of all chosen layers, in running order; parts of the autograd graph.

    Args:
        layers: The layers, in running order.
        mean: Means of the layers' inputs h, (C,).
        var: Biased variances of h, (C,).
        mean_var: Variance over examples of an example's average of h, (C,); without pixels the same as `var`.
        square_var: Variance over examples of an example's average of (h - mean)^2, (C,); without pixels m4 - var^2.
    """

    layers: tuple[BatchNormLayer, ...]
    mean: Tensor
    var: Tensor
    mean_var: Tensor
    square_var: Tensor


@dataclass
class _Call:
    """Data about one layer in the latest forward pass."""

    count: int  # number of calls of the layer
    rows: int
    moments: Moments | None  # None if the layer did not normalise by the batch


class MomentRecorder:
    """Records the moments of every batch that the chosen layers normalise, with hooks that do not change the pass.

    Args:
        model: The network; it has hooks from `attach` to `close`.
        layers: The batch-norm layers to record; see `LayerChoice`.
    """

    def __init__(self, model: nn.Module, layers: LayerChoice = None) -> None:
        if isinstance(model, nn.DataParallel):
            raise NetworkError(
                "model: DataParallel splits a batch between threads, so no layer sees the whole batch. Pass the "
                "network inside it, or use DistributedDataParallel."
            )
        self._network = unwrap(model)
        self._modules = require_batchnorm(self._network)  # all batch-norm layers by name
        self._choice = layers
        chosen = choose_layers(self._network, tuple(self._modules), layers)
        # The last k layers are only known once they have run.
        self._watched = tuple(self._modules) if as_whole(layers) is not None else chosen
        self._handles: list[RemovableHandle] = []  # the active hooks
        self._calls: dict[str, _Call] = {}  # by layer of the latest forward pass, in running order
        self._was_read = False  # whether the latest moments were read

    def attach(self) -> None:
        """Add the hooks; further calls have no effect."""
        if not self._handles:
            self._handles = [self._network.register_forward_pre_hook(self._start_hook())]
            for name in self._watched:
                hook = self._layer_hook(name)
                self._handles.append(self._modules[name].register_forward_pre_hook(hook, with_kwargs=True))

    def close(self) -> None:
        """Remove the hooks and forget the recorded moments."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._forget()

    def read(self) -> BatchMoments:
        """Return the moments of the latest forward pass; may be called repeatedly."""
        if not self._handles:
            raise NetworkError(
                "model: its batches are not recorded. Read moments between attach() and close(), or inside the "
                "`with` block."
            )
        if not self._calls:
            raise NetworkError(
                "model: none of its batch-norm layers has seen a batch yet. Call model(x) in training mode first. "
                "Compile the network with torch.compile only after attach()."
            )
        chosen = self._chosen()
        for name in chosen:
            self._require_a_batch(name)
        self._was_read = True
        parts = zip(*(self._calls[name].moments or () for name in chosen), strict=True)
        modules = [self._modules[name] for name in chosen]
        layers = (BatchNormLayer(n, m.num_features, m.eps) for n, m in zip(chosen, modules, strict=True))
        return BatchMoments(tuple(layers), *map(torch.cat, parts))

    def _chosen(self) -> tuple[str, ...]:
        """Return the chosen layers in running order; refuse a forward pass without one of them."""
        ran = tuple(self._calls)
        missing = [name for name in self._watched if name not in self._calls]
        if missing and as_whole(self._choice) is None:
            raise NetworkError(
                f"model: batch-norm layer {missing[0]!r} did not run in the latest forward pass, or that pass failed. "
                "Leave it out with layers=, or call model(x) again."
            )
        return choose_layers(self._network, ran, self._choice)

    def _require_a_batch(self, name: str) -> None:
        """Refuse a forward pass in which a layer did not normalise by one batch of at least two examples."""
        call = self._calls[name]
        if call.moments is None:
            raise NetworkError(
                f"model: batch-norm layer {name!r} was in evaluation mode in the latest forward pass, where it does "
                "not normalise by the batch. Call model.train() first, or leave the layer out with layers=."
            )
        if call.count > 1:
            raise NetworkError(
                f"model: batch-norm layer {name!r} was called {call.count} times in one forward pass, so a batch has "
                "no single statistic for it. Use a separate layer for each call, or leave it out with layers=."
            )
        if call.rows < 2:
            raise InputError(
                f"x: the latest forward pass had {call.rows} example at batch-norm layer {name!r}, so there is no "
                "variance between examples. Use batches of at least 2 examples."
            )

    def _forget(self) -> None:
        self._calls, self._was_read = {}, False

    # Hooks are plain functions, which deepcopy shares: a copy of the network calls them too, but is not recorded.

    def _start_hook(self) -> Callable[[nn.Module, Any], None]:
        def start(module: nn.Module, args: Any) -> None:
            if module is self._network:
                self._forget()

        return start

    def _layer_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: Any, args: Any, kwargs: Any) -> None:
            if module is not self._modules[name]:
                return
            if self._was_read:  # parts of the network are called directly, so nothing else marks the start
                self._forget()
            h = args[0] if args else kwargs["input"]
            by_batch = module.training or module.running_mean is None
            count = self._calls[name].count + 1 if name in self._calls else 1
            self._calls[name] = _Call(count, len(h), row_moments(h) if by_batch else None)

        return note
