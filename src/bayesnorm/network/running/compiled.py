"""Run all samples in one graph of a compiled copy of a network.

In a frozen copy of the network, each batch-norm layer becomes one scale and one shift per sample. If sampling starts at
the first batch-norm layer, samples are folded into the batch, (samples * batch, ...). If it starts later, they are a
`vmap` axis, and everything before is in the graph once. `torch.compile` fuses the maps, and the whole is replayed as a
CUDA graph. A graph belongs to one number of samples and one batch shape. Graphs are kept, so a known shape needs no new
compilation.

The copy is checked against the uncompiled network on the first input of every shape. If it cannot be compiled or gives
other numbers (for example because examples depend on each other), the uncompiled network is used, with one warning.
"""

from __future__ import annotations

import contextlib
import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...errors import BayesNormError, warn
from ..calling import largest_difference, select_output
from ..copying import private_copy
from ..layers import find_batchnorm
from .affine import State
from .executable import Executable
from .plan import Outputs, Take, default_block_bytes, kind_of

# How many compiled graphs are kept, one per shape.
GRAPHS = 8

# Largest activation of a graph if blocks have no smaller limit; more samples run the graph several times.
GRAPH_BYTES = 64 * 2**20

Graph = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class _Samples:
    """Sampled states, and the maps of all their layers side by side, each (samples, channels)."""

    states: State
    names: tuple[str, ...]
    scale: Tensor
    shift: Tensor

    def some(self, first: int, count: int) -> _Samples:
        """Return `count` of the samples, starting at `first`."""
        if count == len(self.scale):
            return self
        part = slice(first, first + count)
        states = {name: value[part] for name, value in self.states.items()}
        return _Samples(states, self.names, self.scale[part], self.shift[part])


class CompiledExecutable(Executable):
    """An `Executable` whose vectorised runs are compiled, with the weights at the time of compilation.

    Args:
        model: The network.
        output: The entry to take if the network returns a dict or a tuple.
        dtype: Precision of the compiled copy, e.g. torch.bfloat16; None keeps that of the network.
        tf32: Whether convolutions on a GPU may use TF32 if the copy is in single precision.
        mode: The mode of `torch.compile`.
        forward_kwargs: Further arguments of every forward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        output: str | int | None = None,
        *,
        dtype: torch.dtype | None = None,
        tf32: bool = True,
        mode: str = "reduce-overhead",
        forward_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model, output, forward_kwargs)
        if dtype is not None and not dtype.is_floating_point:
            raise BayesNormError(f"dtype must be a floating dtype such as torch.bfloat16, got {dtype}.")
        self._compute_dtype, self._tf32, self._mode = dtype or self.dtype, tf32, mode
        self._warned = False  # whether the warning about uncompiled samples was issued

    def _private(self) -> nn.Module:
        """Return a copy with its own weights, as they are now, and forget the graphs of an earlier copy."""
        # The source of the graphs.
        self._frozen = copy.deepcopy(private_copy(self.model, self.forward_kwargs)).requires_grad_(False)
        self._graphs: OrderedDict[Any, Graph | None] = OrderedDict()  # by shape, the latest used last; None: impossible
        self._samples: _Samples | None = None  # the latest samples
        return private_copy(self._frozen)

    def _run(self, states: State, x: Tensor, take: Take, **options: Any) -> None:
        limits = options.get("chunk"), options.get("block_bytes")
        unlimited = options.get("vectorize", True) and limits == (None, None)
        samples = self._prepared(states)
        if not isinstance(x, Tensor):
            self._say_plain("takes several inputs, which cannot be compiled")
            samples = None
        if samples is not None and unlimited:
            count, kind = len(samples.scale), kind_of(states, x)
            needed = count * len(x) * self._planner.sizes(kind, states, x).bytes_per_row
            budget = max(default_block_bytes(x.device, needed), GRAPH_BYTES)
            most = self._samples_at_once(kind, states, x, budget, len(x))
            size = -(-count // -(-count // most))  # the smallest size with this number of graphs
            graph = self._graph(samples.some(0, size), x)
            if graph is not None:
                for start in range(0, count, size):
                    first = min(start, count - size)  # the last run repeats some samples to need no other graph
                    outputs = self._replay(graph, samples.some(first, size), x)
                    take(slice(0, len(x)), slice(start, first + size), outputs[start - first :])
                return
        super()._run(states, x, take, **options)

    def _graph(self, samples: _Samples, x: Tensor) -> Graph | None:
        """Return the graph for inputs like `x` and this many samples, or None if there is none."""
        key = (samples.names, len(samples.scale), x.shape, x.dtype)
        if key not in self._graphs:
            self._graphs[key] = self._checked(samples, x)
            while len(self._graphs) > GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key]

    def _replay(self, graph: Graph, samples: _Samples, x: Tensor) -> Tensor:
        """Run a graph on inputs in the layout and precision of its compilation; the next run overwrites the result."""
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if x.dtype != self._compute_dtype and x.is_floating_point():
            x = x.to(self._compute_dtype)
        with self._precision():
            return graph(x, samples.scale, samples.shift).to(self._dtype)

    def _checked(self, samples: _Samples, x: Tensor) -> Graph | None:
        """Return a graph for inputs like `x` that gives the same numbers as uncompiled, or None if there is none."""
        plain = Outputs(samples.states, x)
        super()._run(samples.states, x, plain)
        expected = plain.all
        try:
            graph = self._compile(samples.names)
            outputs = self._replay(graph, samples, x)
        except Exception as error:  # compilers fail in many ways that users need not handle
            self._say_plain(f"could not be compiled ({(str(error).strip() or repr(error)).splitlines()[0]})")
            return None
        scale = expected.abs().max().clamp_min(1e-6)
        rough = self._compute_dtype.itemsize < 4 or (self._tf32 and x.is_cuda)
        allowed = float((0.1 if rough else 1e-3) * scale)
        same = outputs.shape == expected.shape
        if not same or not largest_difference(outputs.flatten(0, 1), expected.flatten(0, 1)) <= allowed:
            self._say_plain("gives other numbers when compiled (do its outputs depend on other examples of the batch?)")
            return None
        return graph

    def _say_plain(self, why: str) -> None:
        """Warn once that samples run uncompiled."""
        if not self._warned:
            self._warned = True
            message = (
                f"{type(self.model).__name__} {why}. It runs uncompiled: the numbers are the same, but it takes longer."
            )
            warn(message)

    def _compile(self, names: tuple[str, ...]) -> Graph:
        """Return a graph of a copy whose layers `names` are maps that are passed to it."""
        network = copy.deepcopy(self._frozen).to(self._compute_dtype)
        if any(parameter.dim() == 4 for parameter in network.parameters()):
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        layers = find_batchnorm(network)
        for name in names:
            parent = network.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], _SampledAffine(layers[name].num_features))
        sizes = [layers[name].num_features for name in names]
        fold = names[0] == next(iter(layers))

        def one(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
            parts = zip(names, scale.split(sizes, -1), shift.split(sizes, -1), strict=True)
            state = {f"{name}.{key}": part for name, *maps in parts for key, part in zip(_MAPS, maps, strict=True)}
            return select_output(functional_call(network, state, (x,)), self.output, len(x))

        def run(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
            if not fold:
                return torch.vmap(one, in_dims=(None, 0, 0))(x, scale, shift)
            samples = len(scale)
            return one(x.repeat(samples, *[1] * (x.dim() - 1)), scale, shift).unflatten(0, (samples, len(x)))

        run.__code__ = run.__code__.replace()  # torch limits the number of graphs per code object
        compiled: Graph = torch.compile(run, mode=self._mode, dynamic=False)
        return compiled

    def _prepared(self, states: State) -> _Samples | None:
        """Return the maps of all layers side by side, cached while the samples are the same; None if there are none."""
        if self._samples is None or self._samples.states is not states:
            maps, rest = self._network.batchnorm.maps(states)
            if rest:
                return None
            parts = zip(*maps.values(), strict=True)
            scale, shift = (torch.cat(part, dim=-1).to(self._compute_dtype) for part in parts)
            self._samples = _Samples(states, tuple(maps), scale, shift)
        return self._samples

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        """Allow or forbid TF32 for convolutions temporarily."""
        flags = torch.backends.cudnn
        allowed_before = flags.allow_tf32
        if allowed_before == self._tf32:
            yield
            return
        flags.allow_tf32 = self._tf32
        try:
            yield
        finally:
            flags.allow_tf32 = allowed_before


_MAPS = ("scale", "shift")


class _SampledAffine(nn.Module):
    """Compute h * scale + shift with maps (channels,), or (samples, channels) if samples are folded into the batch."""

    scale: Tensor
    shift: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name in _MAPS:
            self.register_buffer(name, torch.zeros(channels))

    def forward(self, input: Tensor) -> Tensor:
        samples = self.scale.shape[0] if self.scale.dim() == 2 else 1
        pixels = [1] * (input.dim() - 2)
        scale, shift = (part.view(samples, 1, -1, *pixels) for part in (self.scale, self.shift))
        return (input.unflatten(0, (samples, -1)) * scale + shift).flatten(0, 1)
