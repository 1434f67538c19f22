"""Watch the training-mode batches that pass a network's batch-norm layers, and keep their moments differentiable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...arguments import as_whole
from ...errors import InputError, NetworkError
from ..copying import unwrap
from ..layers import BatchNormLayer, LayerChoice, choose_layers, require_batchnorm
from .moments import Moments, row_moments


@dataclass(frozen=True)
class BatchMoments:
    """Moments of one batch at the C channels of all chosen layers, as they run; parts of the autograd graph.

    Args:
        layers: The layers, in running order.
        mean: Means of the layers' inputs h, (C,).
        var: Biased variances of h, (C,).
        mean_var: Over rows, variance of a row's average of h, (C,); without pixels the same as `var`.
        square_var: Over rows, variance of a row's average of (h - mean)^2, (C,); without pixels m4 - var^2.
    """

    layers: tuple[BatchNormLayer, ...]
    mean: Tensor
    var: Tensor
    mean_var: Tensor
    square_var: Tensor


@dataclass
class _Call:
    """What the latest forward did with one layer."""

    count: int  # how often it called the layer
    rows: int
    moments: Moments | None  # None where the layer did not normalise by the batch


class MomentRecorder:
    """Notes the moments of every batch that the chosen layers normalise, by hooks that change nothing in the pass.

    Args:
        model: The network; its hooks are there from `attach` to `close`.
        layers: Which batch-norm layers to watch; see `LayerChoice`.
    """

    def __init__(self, model: nn.Module, layers: LayerChoice = None) -> None:
        if isinstance(model, nn.DataParallel):
            raise NetworkError(
                "model: DataParallel splits a batch among threads, so that no layer sees the whole of it; the network "
                "inside it, or DistributedDataParallel, would work."
            )
        self._network = unwrap(model)
        self._modules = require_batchnorm(self._network)  # all batch-norm layers by name
        self._choice = layers
        chosen = choose_layers(self._network, tuple(self._modules), layers)
        # Which layers are the last k only shows when they run.
        self._watched = tuple(self._modules) if as_whole(layers) is not None else chosen
        self._handles: list[RemovableHandle] = []  # the hooks that are on
        self._calls: dict[str, _Call] = {}  # by layer that ran in the latest forward, as they ran
        self._was_read = False  # whether the latest forward's moments were read

    def attach(self) -> None:
        """Put the hooks on, once however often it is called."""
        if not self._handles:
            self._handles = [self._network.register_forward_pre_hook(self._start_hook())]
            for name in self._watched:
                hook = self._layer_hook(name)
                self._handles.append(self._modules[name].register_forward_pre_hook(hook, with_kwargs=True))

    def close(self) -> None:
        """Take the hooks off and forget what they saw."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._forget()

    def read(self) -> BatchMoments:
        """Return the moments of the latest forward; as often as wanted, until the next one."""
        if not self._handles:
            raise NetworkError(
                "model: its batches are not watched; ask between attach() and close(), or inside the `with` block."
            )
        if not self._calls:
            raise NetworkError(
                "model: none of its batch-norm layers has seen a batch yet; call model(x) in training mode first. A "
                "network that torch.compile has already run would have to be compiled after attach()."
            )
        chosen = self._chosen()
        for name in chosen:
            self._require_a_batch(name)
        self._was_read = True
        parts = zip(*(self._calls[name].moments or () for name in chosen), strict=True)
        mean, var, mean_var, square_var = (torch.cat(part) for part in parts)
        modules = [self._modules[name] for name in chosen]
        layers = (BatchNormLayer(n, m.num_features, m.eps) for n, m in zip(chosen, modules, strict=True))
        return BatchMoments(tuple(layers), mean, var, mean_var, square_var)

    def _chosen(self) -> tuple[str, ...]:
        """Return the chosen layers in running order; refuse a forward that left one out."""
        ran = tuple(self._calls)
        missing = [name for name in self._watched if name not in self._calls]
        if missing and as_whole(self._choice) is None:
            raise NetworkError(
                f"model: batch-norm layer {missing[0]!r} did not run in the latest forward, or that forward failed; "
                "leave it out with layers=, or call model(x) again."
            )
        return choose_layers(self._network, ran, self._choice)

    def _require_a_batch(self, name: str) -> None:
        """Refuse a forward in which a layer did not normalise by one batch of at least two rows."""
        call = self._calls[name]
        if call.moments is None:
            raise NetworkError(
                f"model: batch-norm layer {name!r} was in evaluation mode in the latest forward, where no batch is "
                "normalised; call model.train() first, or leave the layer out with layers=."
            )
        if call.count > 1:
            raise NetworkError(
                f"model: batch-norm layer {name!r} was called {call.count} times in one forward, so a batch has no "
                "single statistic for it; give each call a layer of its own, or leave it out with layers=."
            )
        if call.rows < 2:
            raise InputError(
                f"x: the latest forward brought {call.rows} row to batch-norm layer {name!r}, which has no spread over "
                "rows; a batch of at least 2 rows would work."
            )

    def _forget(self) -> None:
        self._calls, self._was_read = {}, False

    # Hooks are plain functions, which deepcopy shares: a copy of the network calls them too, but is not watched.

    def _start_hook(self) -> Callable[[nn.Module, Any], None]:
        def start(module: nn.Module, args: Any) -> None:
            if module is self._network:
                self._forget()

        return start

    def _layer_hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: Any, args: Any, kwargs: Any) -> None:
            if module is not self._modules[name]:
                return
            if self._was_read:  # parts of the network are called by themselves, so that nothing else marks the start
                self._forget()
            h = args[0] if args else kwargs["input"]
            by_batch = module.training or module.running_mean is None
            count = self._calls[name].count + 1 if name in self._calls else 1
            self._calls[name] = _Call(count, len(h), row_moments(h) if by_batch else None)

        return note
