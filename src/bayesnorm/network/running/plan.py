"""Find out how to run a network on one kind of input, from forward passes over two examples.

The first prediction of a kind runs one forward pass with plain overrides, which gives the shape of the outputs and the
memory per example. A second one, in the way to be used, must give the same numbers. Only if it does not are other ways
tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...errors import NetworkError
from ..inputs import LARGE_ROW, call_network
from ..layout import agrees, channels_last, largest_difference, may_gain_from_channels_last
from .affine import AffineBatchNorm, State
from .prefix import PrefixCache

# Largest activation of a block on a CPU: larger blocks do not fit the caches and are slower.
CPU_BLOCK_BYTES = 4 * 2**20

# Largest activation of a block on a GPU, as a share of the free memory, and in bytes: larger blocks are no faster and
# leave no memory to others.
CUDA_BLOCK_SHARE = 1 / 16
CUDA_BLOCK_BYTES = 2**30


@dataclass(frozen=True)
class Sizes:
    """Sizes of activations and outputs for one kind of input.

    Args:
        bytes_per_row: Memory of the largest activation of one example under one sample.
        output_shape: Shape of one example's output.
        output_dtype: Dtype of outputs.
    """

    bytes_per_row: int
    output_shape: tuple[int, ...]
    output_dtype: torch.dtype


Call = Literal["plain", "mapped", "vectorised"]
"""How samples are run: one by one under plain overrides, one by one with batch norm as affine maps, or many at once."""


@dataclass(frozen=True)
class Calls:
    """The ways to call a network.

    Args:
        plain: Returns outputs under one state by plain overrides, or without overrides.
        mapped: Returns outputs under one state, with batch norm as affine maps.
        vectorised: Returns outputs under many states at once.
    """

    plain: Callable[..., Tensor]
    mapped: Callable[[Tensor, State], Tensor]
    vectorised: Callable[[Tensor, State], Tensor]


@dataclass(frozen=True)
class Way:
    """How samples are run on one kind of input.

    Args:
        call: How the network is called.
        prefix_last: Whether everything before the first sampled module runs channels-last.
        tail_last: Whether the rest runs channels-last.
    """

    call: Call
    prefix_last: bool
    tail_last: bool


@dataclass(frozen=True)
class _Look:
    """Two examples of an input, a state for the test, and the outputs by plain overrides."""

    key: Any  # the kind of input
    x: Tensor
    state: State
    outputs: Tensor


class Planner:
    """Decides how a network is run, once for every kind of input.

    Args:
        network: The private copy that runs.
        affine: Its batch-norm layers, which provide states to compare ways with.
        prefix: Its modules' forwards, which measure activations.
        calls: The ways to call it.
        cannot_vectorise: A function that gets the error of a network that cannot be run under many states at once.
    """

    def __init__(
        self,
        network: nn.Module,
        affine: AffineBatchNorm,
        prefix: PrefixCache,
        calls: Calls,
        cannot_vectorise: Callable[[BaseException], None],
    ) -> None:
        self._network, self._affine, self._prefix = network, affine, prefix
        self._calls, self._cannot_vectorise = calls, cannot_vectorise
        self._sizes: dict[Any, Sizes] = {}  # by kind of input
        self._ways: dict[Any, Way] = {}  # by kind of input, and by what was requested
        self._look: _Look | None = None  # the test of `sizes`, for the `way` requested next

    def sizes(self, states: State, x: Tensor) -> Sizes:
        """Return the sizes of activations and outputs for inputs like `x`."""
        key = kind_of(states, x)
        if key not in self._sizes:
            self._look = self._look_at(states, x)
        return self._sizes[key]

    def way(self, states: State, x: Tensor, wanted: Call) -> Way:
        """Return how to run inputs like `x`, as requested if possible."""
        key = kind_of(states, x)
        look, self._look = self._look, None
        if (key, wanted) not in self._ways:
            images = may_gain_from_channels_last(self._network, x)
            if wanted != "vectorised" and not images:
                return Way("plain", False, False)  # the plain loop over samples needs no test
            if look is None or look.key != key:
                look = self._look_at(states, x)
            way = self._find_way(look, wanted, images)
            if not bool(torch.isfinite(look.outputs).all()):  # such extreme examples or states say nothing about others
                return way
            self._ways[key, wanted] = way
        return self._ways[key, wanted]

    def give_up(self, states: State, x: Tensor, call: Call, error: BaseException) -> Way:
        """Run inputs like `x` one sample at a time by plain overrides from now on; return that way."""
        self._cannot_vectorise(error)
        way = self._ways[kind_of(states, x), call] = self.way(states, x, "plain")
        return way

    def _look_at(self, states: State, x: Tensor) -> _Look:
        """Run two examples, or a large one, by plain overrides, and record the sizes."""
        few, state = x[: 1 if x[0].numel() > LARGE_ROW else 2], self._affine.far(states)
        run = partial(call_network, lambda rows: self._calls.plain(rows, state), few, "x", tuple(x.shape))
        outputs = self._prefix.measure(run, frozenset(name.rpartition(".")[0] for name in states))
        look = _Look(kind_of(states, x), few, state, outputs)
        self._sizes[look.key] = Sizes(
            bytes_per_row=max(1, self._prefix.largest_output * outputs.element_size() // len(few)),
            output_shape=tuple(outputs.shape[1:]),
            output_dtype=outputs.dtype,
        )
        return look

    def _find_way(self, look: _Look, wanted: Call, images: bool) -> Way:
        """Return the first way, fastest first, that gives the same outputs as the test."""
        last = channels_last(look.x) if images else look.x

        def run(rows: Tensor) -> Tensor:
            if wanted == "mapped":
                return self._calls.mapped(rows, look.state)
            twice = {name: value.expand(2, *value.shape) for name, value in look.state.items()}
            return self._calls.vectorised(rows, twice)[0]

        call = wanted
        if wanted != "plain":
            if images and agrees(lambda: run(last), look.outputs):
                return Way(wanted, prefix_last=True, tail_last=True)
            try:
                _require_same(run(look.x), look.outputs)
            except Exception as error:
                call = "plain"
                if wanted == "vectorised":
                    self._cannot_vectorise(error)
        prefix_last = images and agrees(lambda: self._calls.plain(last, look.state), look.outputs)
        return Way(call, prefix_last, tail_last=prefix_last and call == "plain")


def kind_of(states: State, x: Tensor) -> Any:
    """Return a key for what a test is valid for: inputs of this shape, these sampled tensors, this precision."""
    kind = x.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    return tuple(x.shape[1:]), x.dtype, x.device, frozenset(states), autocast


def default_block_bytes(device: torch.device) -> int:
    """Return the limit for the activation of a block of examples and samples, in bytes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return max(1, min(int(free * CUDA_BLOCK_SHARE), CUDA_BLOCK_BYTES))
    return CPU_BLOCK_BYTES


def _require_same(found: Tensor, expected: Tensor) -> None:
    """Refuse outputs that differ by more than rounding, including that of networks with half precision inside."""
    within = 0.1 * float(expected.double().nan_to_num(0, 0, 0).abs().max())
    if not largest_difference(found, expected) <= within:
        raise NetworkError("it then gives other numbers; does it use batch-norm statistics outside of their layers?")
