"""Find which layers of a network write, carry and read the same units, by walking through its graph.

Linear and convolutional layers write units and read others. Batch norm and grouped convolutions carry units; the
channels of a group are one unit. Pooling and activations pass units on. Flattening puts the positions of a channel side
by side, each still the same unit. Channels that are added to each other are one unit, which can only be removed as a
whole. So are channels and the gates that multiply them, as in squeeze-and-excitation, but there a silent channel is
enough. Concatenated channels stay separate units. Any other operation keeps all of its units, and the reason is
recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from .units import OUTPUTS, PLAIN_FORWARDS, Units, channels_apart

# Operations on every channel separately: names of modules, functions and methods in lower case without underscores.
_ZERO_STAYS = {
    *("relu", "relu6", "leakyrelu", "elu", "selu", "celu", "gelu", "silu", "mish", "tanh", "hardtanh", "hardswish"),
    *("softsign", "neg", "abs", "interpolate", "upsample", "identity", "contiguous", "clone", "detach"),
    *("dropout", "dropout1d", "dropout2d", "dropout3d", "alphadropout", "stochasticdepth"),
    *(f"{kind}pool{n}d" for kind in ("max", "avg", "adaptiveavg", "adaptivemax") for n in (1, 2, 3)),
    *(f"{kind}pad{n}d" for kind in ("zero", "reflection", "replication") for n in (1, 2, 3)),
}
_ZERO_MOVES = {"sigmoid", "softplus", "hardsigmoid", "logsigmoid"}


@dataclass(frozen=True)
class _Signal:
    """What is known about a tensor between layers.

    Args:
        units: The unit of every channel.
        dims: The tensor's number of dimensions, with channels on axis 1; 0 if channels are last, as in linear layers.
        flat: Whether an unknown number of positions of every channel are side by side.
        moved: Whether channels may differ from zero although their units are silent.
    """

    units: tuple[int, ...]
    dims: int = 0
    flat: bool = False
    moved: bool = False

    def like(self, other: _Signal) -> bool:
        """Return whether another signal has its channels along the same axis."""
        return (self.dims, self.flat) == (other.dims, other.flat)

    def columns(self, count: int) -> tuple[int, ...] | None:
        """Return the units of `count` channels, or None if the number does not fit."""
        if not self.flat:
            return self.units if count == len(self.units) else None
        if self.dims == 0 and count != len(self.units):  # sequence positions come before channels
            return None
        times, rest = divmod(count, len(self.units))
        return tuple(unit for unit in self.units for _ in range(times)) if not rest else None


class Walk:
    """Walk through a graph and record which layers write, carry and read which units."""

    def __init__(self, network: nn.Module, modules: dict[str, nn.Module], uses: Counter[nn.Module]) -> None:
        self._network, self._modules, self._uses = network, modules, uses
        self._signals: dict[fx.Node, _Signal] = {}
        self._same: list[int] = []  # the unit that this unit is merged into, or itself
        self._joined: set[int] = set()  # units merged with others
        self._gates: set[int] = set()  # units that multiply others
        self._units = Units()

    def units(self) -> Units:
        """Return the units, each with one number."""
        traced, root = self._units, self._root
        for name, columns in traced.read.items():
            for unit in self._gates.intersection(columns):
                traced.required.setdefault(unit, f"{name} reads units that are gates of others")
        return Units(
            {name: [root(unit) for unit in units] for name, units in traced.written.items()},
            {name: [None if u is None else root(u) for u in units] for name, units in traced.read.items()},
            {name: [root(unit) for unit in units] for name, units in traced.carried.items()},
            {root(unit): reason for unit, reason in traced.required.items()},
            traced.normalised,
            {root(unit) for unit in traced.nonzero_at_zero},
            {name for name, units in traced.written.items() if self._gates.issuperset(units)},
        )

    def visit(self, node: fx.Node) -> None:
        """Process one node of the graph."""
        signal = None
        if node.op == "call_module":
            signal = self._layer(node, self._modules[str(node.target)])
        elif node.op in ("call_function", "call_method"):
            signal = self._operation(node, _name(node.target))
        elif node.op == "output":
            self._keep(node, OUTPUTS)
        if signal is not None:
            self._signals[node] = signal

    def _layer(self, node: fx.Node, module: nn.Module) -> _Signal | None:
        name = str(node.target)
        signal = self._input(node)
        if isinstance(module, nn.Linear | _ConvNd | _BatchNorm):
            if self._uses[module] > 1:
                return self._keep(node, f"{name} ({type(module).__name__}) is used more than once")
            if isinstance(module, _BatchNorm):
                return self._normalise(node, name, signal, module)
            if type(module).forward not in PLAIN_FORWARDS or isinstance(module, _ConvTransposeNd):
                return self._keep(node, f"{name} ({type(module).__name__}) has a custom forward")
            return self._map(node, name, signal, module)
        if isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) == (1, -1):
            return signal and replace(signal, flat=True)
        if isinstance(module, nn.PReLU) and module.num_parameters == 1:
            return signal
        return self._pass(node, type(module).__name__.lower())

    def _map(self, node: fx.Node, name: str, signal: _Signal | None, module: nn.Linear | _ConvNd) -> _Signal | None:
        """Process a layer that reads units and writes others."""
        if isinstance(module, nn.Linear):
            inputs, outputs, dims = module.in_features, module.out_features, 0
        else:
            inputs, outputs, dims = module.in_channels, module.out_channels, module.weight.dim()
            if module.groups > 1:
                return self._carry(node, name, signal, inputs, outputs, module.groups)
        columns: Any = None
        if signal is not None:
            fits = (signal.dims == 0 or signal.flat) if dims == 0 else (signal.dims == dims and not signal.flat)
            columns = signal.columns(inputs) if fits else None
            if columns is None:
                self._keep(node, f"{name} reads them along another axis")
            self._note_moved(signal)
        self._units.read[name] = list(columns or [None] * inputs)
        self._units.written[name] = written = self._fresh(outputs)
        return _Signal(tuple(written), dims)

    def _normalise(self, node: fx.Node, name: str, signal: _Signal | None, module: _BatchNorm) -> _Signal | None:
        """Process batch norm, which may do more than that to every channel."""
        if type(module).forward is _BatchNorm.forward or signal is None:
            return self._carry(node, name, signal, module.num_features)
        apart, zero_stays = channels_apart(module, 2 if signal.flat else signal.dims or 2)
        if not apart:
            return self._keep(node, f"{name} ({type(module).__name__}) has a custom forward")
        carried = self._carry(node, name, signal, module.num_features)
        return carried and replace(carried, moved=carried.moved or not zero_stays)

    def _carry(
        self, node: fx.Node, name: str, signal: _Signal | None, inputs: int, outputs: int = 0, groups: int = 0
    ) -> _Signal | None:
        """Process a layer that keeps channels, or groups of channels, separate; each group is one unit."""
        columns = signal.columns(inputs) if signal is not None else None
        if signal is None or columns is None:
            return self._keep(node, f"{name} has a different number of channels")
        if groups:
            size, repeats = inputs // groups, outputs // groups
            for start in range(0, inputs, size):
                self._join(columns[start : start + 1] * (size - 1), columns[start + 1 : start + size])
            columns = tuple(columns[group * size] for group in range(groups) for _ in range(repeats))
        self._units.carried[name] = list(columns)
        before = node.args[0]
        if isinstance(before, fx.Node) and before.target in self._units.written:
            self._units.normalised[str(before.target)] = name
        self._note_moved(signal)
        return _Signal(columns, 0 if signal.flat else signal.dims, moved=signal.moved)

    def _operation(self, node: fx.Node, name: str) -> _Signal | None:
        signal = self._input(node)
        if name in ("size", "getattr", "dim"):
            return None  # of shapes
        name = name.replace("_", "")
        if (
            len(node.args) == 2
            and not node.kwargs
            and name in ("add", "iadd", "sub", "isub", "mul", "imul", "truediv", "div")
        ):
            return self._combine(node, name.removeprefix("i"))
        if name in ("cat", "concat", "concatenate"):
            return self._concatenate(node)
        if signal is not None and _flattens(node, name):
            return replace(signal, flat=True)
        if signal is not None and name in ("view", "reshape"):
            return self._view(node, signal)
        if signal is not None and name == "expandas" and len(self._inputs(node)) == 2:
            other = self._inputs(node)[1]
            return signal if signal.like(other) and self._roots(signal) == self._roots(other) else self._unknown(node)
        if signal is not None and signal.dims > 2 and not signal.flat:
            return self._positions(node, name, signal)
        return self._pass(node, name)

    def _positions(self, node: fx.Node, name: str, signal: _Signal) -> _Signal | None:
        """Process operations on positions of channels: averaging, cropping, padding, dropping axes."""
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        axes = dim if isinstance(dim, list | tuple) else [dim]
        places = [axis % signal.dims for axis in axes if isinstance(axis, int)]
        if name in ("mean", "sum", "amax") and len(places) == len(axes) and set(places) == set(range(2, signal.dims)):
            keeps_axes = node.kwargs.get("keepdim", node.args[2] if len(node.args) > 2 else False)
            return signal if keeps_axes else replace(signal, dims=0)
        if name == "squeeze" and len(places) == len(axes) == 1 and places[0] > 1:
            return replace(signal, dims=signal.dims - 1 if signal.dims > 3 else 0)
        if (
            name == "getitem"
            and all(isinstance(axis, slice) for axis in axes)
            and tuple(axes[:2]) == (slice(None),) * 2
        ):
            return signal
        if name == "pad" and isinstance(dim, list | tuple) and len(dim) <= 2 * (signal.dims - 2):
            filled = node.kwargs.get("value", node.args[3] if len(node.args) > 3 else None)
            return replace(signal, moved=signal.moved or bool(filled))
        return self._pass(node, name)

    def _pass(self, node: fx.Node, name: str) -> _Signal | None:
        """Process an operation on every channel separately; any other operation keeps its units."""
        signal, name = self._input(node), name.replace("_", "")
        if name in _ZERO_STAYS | _ZERO_MOVES and len(self._inputs(node)) <= 1:
            return signal and replace(signal, moved=signal.moved or name in _ZERO_MOVES)
        return self._unknown(node)

    def _unknown(self, node: fx.Node) -> _Signal | None:
        """Process any other use of units."""
        kind = type(self._modules[str(node.target)]).__name__ if node.op == "call_module" else _name(node.target)
        name = kind.lower().replace("_", "")
        return self._keep(node, f"{node.name} ({name}) uses them in a way that may mix channels")

    def _combine(self, node: fx.Node, name: str) -> _Signal | None:
        """Process a sum, difference, product or quotient of two tensors, or of a tensor and a number."""
        number = [argument for argument in node.args if self._is_number(argument)]
        if number:
            signal = next(iter(self._inputs(node)), None)
            shifts = name in ("add", "sub") and bool(number[0] != 0)
            inverts = name in ("truediv", "div") and number[0] is node.args[0]
            return signal and replace(signal, moved=signal.moved or shifts or inverts)
        if name in ("add", "sub"):
            return self._add(node)
        return self._multiply(node) if name == "mul" else self._unknown(node)

    def _is_number(self, argument: Any) -> bool:
        """Return whether an argument is a number, or a parameter with one entry."""
        if isinstance(argument, fx.Node) and argument.op == "get_attr":
            value: Any = self._network
            for part in str(argument.target).split("."):
                value = getattr(value, part)
            return isinstance(value, Tensor) and value.numel() == 1
        return isinstance(argument, int | float)

    def _multiply(self, node: fx.Node) -> _Signal | None:
        """Process a product: if a channel is zero, so is the product."""
        signals = [self._signals.get(argument) for argument in node.args if isinstance(argument, fx.Node)]
        first, second = signals
        if first is None or second is None or not first.like(second):
            return self._unknown(node)
        channel, gate = (second, first) if first.moved and not second.moved else (first, second)
        if len(gate.units) == 1 < len(channel.units):  # one gate for all channels
            self._note_kept(gate.units, f"{node.name} multiplies others by them")
            return channel
        if len(channel.units) != len(gate.units):
            return self._keep(node, f"{node.name} multiplies tensors of several shapes")
        moved = channel.moved and gate.moved
        if self._roots(channel) != self._roots(gate):
            if gate.moved and not moved and not self._follow(gate.units, channel.units):
                return self._keep(node, f"{node.name} multiplies them by a signal with other uses")
            self._join(channel.units, gate.units)
        return replace(channel, moved=moved)

    def _follow(self, gates: Sequence[int], units: Sequence[int]) -> bool:
        """Make units gates of others, unless they already have another use."""
        if self._joined.intersection(gates) or set(gates) & set(units):
            return False
        self._gates.update(gates)
        return True

    def _view(self, node: fx.Node, signal: _Signal) -> _Signal | None:
        """Process reshaping between (batch, channels) and (batch, channels, 1, 1) by sizes that were read from a
        tensor.
        """
        sizes: Any = node.args[1] if isinstance(node.args[1], list | tuple) else node.args[1:]
        source = self._counted(sizes[1]) if len(sizes) > 1 else None
        if source is None or node.kwargs or len(source.units) != len(signal.units) or any(n != 1 for n in sizes[2:]):
            return self._unknown(node)
        if self._roots(source) != self._roots(signal):  # the same number as others, also after removal
            if not self._follow(signal.units, source.units):
                return self._unknown(node)
            self._join(source.units, signal.units)
        return replace(signal, dims=0 if len(sizes) == 2 else len(sizes), flat=False)

    def _counted(self, size: Any) -> _Signal | None:
        """Return the signal whose channels were counted: `x.size(1)`, `x.size()[1]` or `x.shape[1]`."""
        if not isinstance(size, fx.Node) or len(size.args) != 2 or size.args[1] != 1:
            return None
        tensor = size.args[0]
        if _name(size.target) == "getitem" and isinstance(tensor, fx.Node):
            if not (_name(tensor.target) == "size" and len(tensor.args) == 1) and tensor.args[1:] != ("shape",):
                return None
            tensor = tensor.args[0]
        elif _name(size.target) != "size":
            return None
        signal = self._signals.get(tensor) if isinstance(tensor, fx.Node) else None
        return signal if signal is not None and signal.dims and not signal.flat else None

    def _add(self, node: fx.Node) -> _Signal | None:
        signals = [self._signals.get(argument) if isinstance(argument, fx.Node) else None for argument in node.args]
        first, second = signals
        if first is None or second is None or not first.like(second):
            return self._keep(node, f"{node.name} adds a signal with unknown units to them")
        if len(first.units) != len(second.units):
            return self._keep(node, f"{node.name} adds tensors of several shapes")
        if self._gates.intersection((*first.units, *second.units)):
            return self._keep(node, f"{node.name} adds gates of others")
        self._join(first.units, second.units)
        return replace(first, moved=first.moved or second.moved)

    def _join(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Merge units, pair by pair."""
        self._joined.update(first, second)
        for one, other in zip(first, second, strict=True):
            self._same[self._root(one)] = self._root(other)

    def _concatenate(self, node: fx.Node) -> _Signal | None:
        parts, axis = node.args[0], node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
        signals = [self._signals.get(part) for part in parts] if isinstance(parts, list | tuple) else [None]  # type: ignore[arg-type]
        traced = [signal for signal in signals if signal is not None]
        alike = len({signal.dims for signal in traced}) == 1 and not any(signal.flat for signal in traced)
        if len(traced) < len(signals) or not alike or axis not in ((1,) if traced[0].dims else (-1, 1)):
            return self._keep(node, f"{node.name} concatenates them with a signal with unknown units")
        moved = any(signal.moved for signal in traced)
        return _Signal(tuple(unit for signal in traced for unit in signal.units), traced[0].dims, moved=moved)

    def _keep(self, node: fx.Node, reason: str) -> _Signal | None:
        """Record that the units of a node's inputs cannot be removed; nothing is known about its output."""
        for signal in self._inputs(node):
            self._note_kept(signal.units, reason)
        return None

    def _note_kept(self, units: Sequence[int], reason: str) -> None:
        for unit in units:
            self._units.required.setdefault(unit, reason)

    def _note_moved(self, signal: _Signal) -> None:
        if signal.moved:
            self._units.nonzero_at_zero.update(signal.units)

    def _inputs(self, node: fx.Node) -> list[_Signal]:
        return [self._signals[argument] for argument in node.all_input_nodes if argument in self._signals]

    def _input(self, node: fx.Node) -> _Signal | None:
        """Return the signal of the first argument."""
        first = node.args[0] if node.args else None
        return self._signals.get(first) if isinstance(first, fx.Node) else None

    def _fresh(self, count: int) -> list[int]:
        made = list(range(len(self._same), len(self._same) + count))
        self._same += made
        return made

    def _roots(self, signal: _Signal) -> list[int]:
        return [self._root(unit) for unit in signal.units]

    def _root(self, unit: int) -> int:
        while self._same[unit] != unit:
            unit = self._same[unit]
        return unit


def _name(target: Any) -> str:
    """Return the name of a function or method."""
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))


def _flattens(node: fx.Node, name: str) -> bool:
    """Return whether a call flattens all axes but the first."""
    arguments = [*node.args[1:], *node.kwargs.values()]
    if name == "flatten":
        return arguments in ([1], [1, -1])
    if name in ("view", "reshape"):
        sizes: Any = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list | tuple) else arguments
        return len(sizes) == 2 and isinstance(sizes[1], int) and sizes[1] == -1
    return False
