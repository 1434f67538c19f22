"""Run a network under sampled dropout masks: a sample overrides the seed of every dropout layer.

The network that runs is a private copy whose dropout layers are `SeededDropout`; everything else in it is in evaluation
mode. Dropout that a forward calls directly has no layer to hold a seed, so such networks are refused. `watch_dropout`
finds such calls, and the axis of a layer's input that has the examples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

from ...errors import InputError, NetworkError
from ..calling import call_network, with_small_images
from ..copying import device_of, private_copy
from ..layers import find_dropout, listing, refusal
from ..restoring import isolated_randomness
from .affine import State
from .executable import Executable
from .plan import Take
from .seeded_dropout import Axes, SeededDropout, seed_dropout


class DropoutExecutable(Executable):
    """An `Executable` whose states may hold a seed for every dropout layer, `"<layer>.seed"`.

    Args:
        model: The network.
        output: The entry to take if the network returns a dict or a tuple.
        rates: The rate of every dropout layer, see `dropout_rates`.
        consistent: Whether all examples share a sample's masks.
        forward_kwargs: Further arguments of every forward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        output: str | int | None = None,
        *,
        rates: Mapping[str, float],
        consistent: bool,
        forward_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.rates, self.consistent = dict(rates), consistent
        super().__init__(model, output, forward_kwargs)

    def _build(self) -> None:
        self._looked = False  # whether `look` has run
        self._apart = True  # whether the examples' axes of layers' inputs hold nothing else
        self._axes: dict[str, Axes] = {}  # the examples' axes by layer, if known
        super()._build()

    def _private(self) -> nn.Module:
        network, self._layers = self._seeded()  # the sampled dropout layers of the copy that runs
        return network

    @property
    def network(self) -> nn.Module:
        """Return a private copy of the network; its sampled dropout layers have a buffer `seed`, negative for off."""
        self._refresh()
        return self._seeded()[0]

    @property
    def sampled_layers(self) -> tuple[str, ...]:
        """Return the names of the sampled dropout layers."""
        return tuple(name for name, rate in self.rates.items() if rate > 0)

    @torch.inference_mode(False)
    @torch.no_grad()
    def look(self, x: Any) -> None:
        """Find the axis of examples in each layer's input from a few examples, and refuse dropout without a layer.

        This is done once, before the first run.
        """
        x = self.input(x)
        if self._looked:
            return
        network, layers = self._seeded()
        seen = with_small_images(lambda images: watch_dropout(*self._seeded(), images), x)
        modules = dict(network.named_modules())
        for name, function in seen.always.items():
            raise NetworkError(refusal(name, modules[name], function, always=True))
        for name, function in seen.in_training.items():
            if self.rates.get(name) != 0:
                raise NetworkError(refusal(name, modules[name], function))
        if not seen.axes:
            raise NetworkError(
                f"model: none of its dropout layers ({listing(layers)}) runs in evaluation mode. Pass a network whose "
                "forward uses them."
            )
        for name, axes in seen.axes.items():
            self._axes[name] = self._layers[name].axes = axes
        self._looked, self._apart = True, seen.apart

    def _seeded(self) -> tuple[nn.Module, dict[str, SeededDropout]]:
        """Return a private copy whose sampled dropout layers have seeds, and those layers by name."""
        network = private_copy(self.model, self.forward_kwargs)
        layers = find_dropout(network)
        for name in self.sampled_layers:
            if name not in layers:
                raise NetworkError(
                    f"model: {name!r} is not a dropout layer, but the posterior samples one there. Pass a network "
                    f"with the same dropout layers (this one has {listing(layers)})."
                )
        sampled = {name: self.rates[name] for name in self.sampled_layers}
        return network, seed_dropout(network, sampled, self.consistent, self._axes, device_of(self.model))

    def _run(self, states: State, x: Tensor, take: Take, **options: Any) -> None:
        self.look(x)
        super()._run(states, x, take, **options)

    def _note_first_row(self, start: int) -> None:
        for layer in self._layers.values():
            layer.first_row = start

    def _rows_independent(self, x: Tensor) -> bool:
        # If an axis holds examples and something else (such as time), a block's masks cannot be assigned to examples.
        return (self.consistent or self._apart) and super()._rows_independent(x)


Shapes = dict[str, list[tuple[int, ...]]]
"""The shapes of every layer's inputs in the calls of one pass, by its name."""


@dataclass(frozen=True)
class DropoutSeen:
    """Observations about a network's dropout from a few forward passes.

    Args:
        always: Modules that call a dropout function in evaluation mode, with its name.
        in_training: The same in training mode, if the network could be run in it.
        axes: For every layer that ran, the axis of its input that has the examples.
        apart: Whether that axis has nothing else, such as time steps.
    """

    always: dict[str, str]
    in_training: dict[str, str]
    axes: dict[str, Axes]
    apart: bool


def watch_dropout(network: nn.Module, layers: Mapping[str, nn.Module], x: Tensor) -> DropoutSeen:
    """Run a private copy on a few examples of `x`, once in training mode and twice in evaluation mode.

    Args:
        network: The copy, which must not be used afterwards.
        layers: The layers to observe, by name.
        x: Inputs on the network's device.
    """
    _clone_tensors(network)
    watch = _Watch(network, layers)
    few = [x[torch.arange(rows, device=x.device) % len(x)] for rows in (2, 3)]
    with isolated_randomness(0, x.device):
        try:
            shapes, in_training = watch.run_modes(few)
        except InputError:  # perhaps a network of a whole graph
            shapes, in_training = watch.run_modes([x])
            few = [x]
    first, last = shapes[0], shapes[-1]
    axes = {name: _row_axes(first[name], last[name], len(few[0]), len(few[-1])) for name in layers if first[name]}
    apart = all(
        axis is None or shape[axis] == len(few[0])
        for name, layer_axes in axes.items()
        for axis, shape in zip(layer_axes, first[name], strict=False)
    )
    return DropoutSeen(always=watch.functions, in_training=in_training, axes=axes, apart=apart)


class _Watch(TorchFunctionMode):
    """Records which modules call torch's dropout functions, and the input shapes of layers."""

    def __init__(self, network: nn.Module, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.functions: dict[str, str] = {}  # the dropout function that each module's forward called
        self._shapes: Shapes = {name: [] for name in layers}
        self._network = network
        self._inside: list[str] = []  # the modules whose forwards are running, the innermost last
        for name, module in network.named_modules():
            module.register_forward_pre_hook(self._entering(name, name in layers), prepend=True)
            module.register_forward_hook(self._left)

    def run(self, network: nn.Module, x: Tensor) -> Shapes:
        """Run one forward pass; return the layers' input shapes, and set `functions` to those of this pass."""
        self.functions, self._shapes = {}, {name: [] for name in self._shapes}
        self._inside.clear()
        with self:
            call_network(network, x.clone(), "x")
        return self._shapes

    def run_modes(self, inputs: Sequence[Tensor]) -> tuple[list[Shapes], dict[str, str]]:
        """Return the shapes of every pass in evaluation mode, and the `functions` of a pass in training mode."""
        with contextlib.suppress(Exception):  # some networks need targets in training mode
            self.run(_in_training(self._network), inputs[0])
        in_training = dict(self.functions)
        self._network.eval()
        return [self.run(self._network, x) for x in inputs], in_training

    def _entering(self, name: str, watched: bool) -> Callable[[nn.Module, Any], None]:
        def hook(_module: nn.Module, args: Any) -> None:
            self._inside.append(name)
            if watched and args:
                self._shapes[name].append(tuple(args[0].shape))

        return hook

    def _left(self, *_: Any) -> None:
        self._inside.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _drops(func, args, kwargs):
            self.functions.setdefault(self._inside[-1] if self._inside else "", func.__name__)
        return func(*args, **kwargs)


_ON_UNLESS_TOLD = {"dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "feature_dropout_"}
_OFF_UNLESS_TOLD = {"alpha_dropout", "alpha_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_"}


def _drops(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a call of a torch function applies dropout."""
    name = getattr(func, "__name__", "")

    def argument(position: int, *names: str, otherwise: Any) -> Any:
        named = [kwargs[name] for name in names if name in kwargs]
        return named[0] if named else args[position] if len(args) > position else otherwise

    if name == "scaled_dot_product_attention":
        return bool(argument(4, "dropout_p", otherwise=0) > 0)
    if name == "multi_head_attention_forward":
        return bool(argument(10, "dropout_p", otherwise=0) > 0 and argument(13, "training", otherwise=True))
    if name in _ON_UNLESS_TOLD or name in _OFF_UNLESS_TOLD:
        on = argument(2, "training", "train", otherwise=name in _ON_UNLESS_TOLD)
        return bool(on and argument(1, "p", otherwise=0.5) > 0)
    return False


def _row_axes(first: list[tuple[int, ...]], last: list[tuple[int, ...]], few: int, more: int) -> Axes:
    """Return the axis that grows with the number of examples in each call.

    Args:
        first, last: The shapes for a few examples and for more; equal for a network of a whole graph.
        few, more: The numbers of examples.
    """
    axes: list[int | None] = []
    for a, b in zip(first, last, strict=False):
        sizes = enumerate(zip(a, b, strict=False))
        growing = [i for i, (m, n) in sizes if more * m == few * n and (m != n or m == few == more)]
        axes.append(growing[0] if growing else None)
    return tuple(axes) or (0,)


def _in_training(network: nn.Module) -> nn.Module:
    """Put a network in training mode, except for normalisation, which may refuse a few examples."""
    network.train()
    for _, module in network.named_modules():
        if isinstance(module, _NormBase):
            module.eval()
    return network


def _clone_tensors(network: nn.Module) -> None:
    """Give a private copy its own tensors, since a forward pass in training mode might write to them."""
    for _, module in network.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[key] = nn.Parameter(parameter.detach().clone(), requires_grad=False)
        for mapping in (module._buffers, vars(module)):
            for key, value in mapping.items():
                if isinstance(value, Tensor):
                    mapping[key] = value.detach().clone()
