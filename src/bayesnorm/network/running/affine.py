"""Run batch norm as one affine map per channel, so that samples can be a `vmap` axis and have derivatives.

PyTorch's batch norm in evaluation mode is slow under `vmap` and has no derivative with respect to its running
statistics. With mean m and variance v it is h * scale + shift, where scale = weight / sqrt(v + eps) and shift = bias -
m * scale.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..layers import find_batchnorm

State = dict[str, Tensor]
"""Overrides by parameter or buffer name, each (n, *shape)."""


Maps = dict[str, tuple[Tensor, Tensor]]
"""Scale and shift of batch-norm layers by name, each (..., channels)."""


class AffineBatchNorm:
    """Run the batch-norm layers of a private copy as affine maps under given statistics.

    Layers that only normalise (`plain`) are replaced by the map. A subclass that does more (`special`), such as one
    that includes an activation, keeps its own forward. On request its input is changed so that its own normalisation
    gives the sampled one. This has derivatives, but is correct only if the layer uses its input for nothing else.
    """

    def __init__(self, network: nn.Module) -> None:
        layers = find_batchnorm(network)
        self.plain = {name: module for name, module in layers.items() if _only_normalises(module)}
        self.special = {name: module for name, module in layers.items() if name not in self.plain}
        self._maps: Maps = {}  # the maps of the current forward pass
        # Layers, and activations after them, whose input nothing else uses.
        self._fresh = {name: relu for name, relu in _behind_convolutions(network).items() if name in self.plain}
        self._needed: Callable[[Tensor], bool] | None = None  # when overwriting, tells which inputs are still needed
        for name, module in layers.items():
            module.forward = self._wrapped(name, module.forward)  # type: ignore[method-assign]

    def maps(self, state: State, special: bool = False) -> tuple[Maps, State]:
        """Return the maps of layers under the statistics in `state`, and the remaining overrides.

        Args:
            state: Statistics, (..., channels), and other overrides. There may be a leading axis of states, or of
                examples if statistics differ between them.
            special: Whether special layers take part; otherwise their statistics are among the remaining overrides.
        """
        maps, rest = {}, dict(state)
        for layer in dict.fromkeys(name.rpartition(".")[0] for name in state):
            if layer in self.plain or (special and layer in self.special):
                mean, var = rest.pop(f"{layer}.running_mean", None), rest.pop(f"{layer}.running_var", None)
                if mean is not None or var is not None:
                    learned = ("weight", "bias") if layer in self.plain else ()
                    maps[layer] = self.map_of(layer, mean, var, *(rest.pop(f"{layer}.{key}", None) for key in learned))
        return maps, rest

    @contextlib.contextmanager
    def under(self, maps: Maps) -> Iterator[None]:
        """Run layers as these maps; layers without a map run their own forward."""
        self._maps = maps
        try:
            yield
        finally:
            self._maps = {}

    def writes(self, state: State) -> bool:
        """Return whether forward passes under such a state can map some layer's input in place."""
        return any(name.rpartition(".")[0] in self._fresh for name in state)

    @contextlib.contextmanager
    def in_place(self, needed: Callable[[Tensor], bool]) -> Iterator[None]:
        """Let maps, and activations after them, overwrite inputs that nothing else uses.

        Allocating a new array for an image's features takes ten times as long as filling it.

        Args:
            needed: Returns whether an input is needed again.
        """
        written = [relu for relu in self._fresh.values() if relu is not None and not relu.inplace]
        self._needed = needed
        try:
            for relu in written:
                relu.inplace = True
            yield
        finally:
            self._needed = None
            for relu in written:
                relu.inplace = False

    def map_of(
        self,
        name: str,
        mean: Tensor | None,
        var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return scale and shift of a layer under some statistics, (..., channels); None stands for its own."""
        module = self.plain.get(name) or self.special[name]
        running_mean, running_var = module.running_mean, module.running_var
        assert running_mean is not None
        assert running_var is not None
        mean, var = running_mean if mean is None else mean, running_var if var is None else var
        if name in self.special:
            scale = torch.rsqrt(at_least_float(var) + module.eps) * torch.sqrt(running_var + module.eps)
            shift = running_mean - mean * scale
            return scale.expand_as(shift), shift
        weight, bias = module.weight if weight is None else weight, module.bias if bias is None else bias
        return scale_and_shift(mean, var, module.eps, weight, bias)

    def far(self, states: State) -> State:
        """Return the first of several states with its statistics moved far away.

        This reveals whether a forward uses statistics for anything but the map.
        """
        one = {name: value[0] for name, value in states.items()}
        for name in self.plain:
            mean, var = (one.get(f"{name}.{key}") for key in ("running_mean", "running_var"))
            if mean is not None and var is not None:
                sign = 1 - 2 * (torch.arange(len(mean), device=mean.device) % 2)  # so that some units pass a ReLU
                var = var.clamp_min(0)  # sampled variances of constant channels are 0 up to rounding
                one |= {f"{name}.running_mean": mean + 2 * sign * var.sqrt(), f"{name}.running_var": 4 * var}
        return one

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward that uses the layer's map if there is one."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            layer_map = self._maps.get(name)
            if layer_map is None:
                return original(*args, **kwargs)
            h = args[0] if args else kwargs.pop("input")
            scale, shift = layer_map
            if h.dim() > 2:
                shape = (-1, scale.shape[-1], *[1] * (h.dim() - 2))
                scale, shift = scale.view(shape), shift.view(shape)
            may_write = self._needed is not None and name in self._fresh and not h.requires_grad and not self._needed(h)
            if may_write and h.dtype == scale.dtype == shift.dtype:
                return torch.addcmul(shift, h, scale, out=h)
            mapped = torch.addcmul(shift, h, scale)
            mapped = mapped if mapped.dtype == h.dtype else mapped.to(h.dtype)
            return mapped if name in self.plain else original(mapped, *args[1:], **kwargs)

        return forward


def scale_and_shift(
    mean: Tensor, var: Tensor, eps: float, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the affine map of a batch norm under some statistics, scale and shift, each (..., channels)."""
    scale = torch.rsqrt(at_least_float(var) + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    # With sampled means alone, scales have no axis of states yet.
    return scale if scale.shape == shift.shape else scale.expand_as(shift), shift


def at_least_float(values: Tensor) -> Tensor:
    """Return half precision as single precision."""
    return values.float() if values.dtype.itemsize < 4 else values


def _behind_convolutions(network: nn.Module) -> dict[str, nn.ReLU | None]:
    """Return names of modules directly after a convolution in an `nn.Sequential`, each with the ReLU after it.

    Modules with hooks, and a ReLU that occurs in several places, are left out.
    """
    activations: dict[str, nn.ReLU | None] = {}
    places = Counter(id(module) for _, parent in network.named_modules() for module in parent._modules.values())
    for prefix, parent in network.named_modules():
        if type(parent) is not nn.Sequential:
            continue
        inside = [*parent._modules.items(), ("", None)]
        for (_, before), (name, layer), (_, after) in zip(inside, inside[1:], inside[2:], strict=False):
            if type(before) not in (nn.Conv1d, nn.Conv2d, nn.Conv3d) or _hooked(before) or _hooked(layer):
                continue
            alone = type(after) is nn.ReLU and places[id(after)] == 1 and not _hooked(after)
            activations[f"{prefix}.{name}" if prefix else name] = after if alone else None  # type: ignore[assignment]
    return activations


def _hooked(module: nn.Module | None) -> bool:
    return module is None or bool(module._forward_hooks or module._forward_pre_hooks)


def _only_normalises(module: _BatchNorm) -> bool:
    """Return whether a layer's forward is torch's own."""
    originals = _BatchNorm.forward, nn.SyncBatchNorm.forward
    return "forward" not in vars(module) and type(module).forward in originals
