"""Find out how to run a network on one kind of input, from forward passes over two examples.

The first prediction of a kind runs one forward pass with plain overrides, which gives the shape of the outputs and the
memory per example. A second one, in the way to be used, must give the same numbers. Only if it does not are other ways
tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from ...errors import NetworkError
from ..calling import (
    LARGE_ROW,
    agrees,
    channels_last,
    forward_errors_explained,
    largest_difference,
    may_gain_from_channels_last,
)
from .affine import State
from .private_network import PrivateNetwork

Kind = tuple[Any, ...]
"""What a test is valid for; see `kind_of`."""

# Largest activation of a block on a CPU: larger blocks do not fit the caches and are slower.
CPU_BLOCK_BYTES = 4 * 2**20

# Largest activation of a block on a GPU, as a share of the free memory, and in bytes: larger blocks are no faster and
# leave no memory to others.
CUDA_BLOCK_SHARE = 1 / 16
CUDA_BLOCK_BYTES = 2**30
CUDA_SMALL_BYTES = 2**24


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


Call = Literal["reference", "in_place", "vectorised"]
"""How samples are run; see the methods of `PrivateNetwork` with these names."""


@dataclass(frozen=True)
class Way:
    """How samples are run on one kind of input.

    Args:
        call: How the network is called.
        prefix_last: Whether everything before the first sampled module runs channels-last.
        tail_last: Whether the rest runs channels-last.
        failure: The error because of which samples run one by one, if they should have run at once.
    """

    call: Call
    prefix_last: bool = False
    tail_last: bool = False
    failure: BaseException | None = None


@dataclass(frozen=True)
class _Trial:
    """Two examples of an input, a state for the test, and the outputs by plain overrides."""

    kind: Kind
    x: Tensor
    state: State
    outputs: Tensor


class Planner:
    """Decides how a network is run, once for every kind of input; see `kind_of`.

    Args:
        network: The network, called in different ways.
    """

    def __init__(self, network: PrivateNetwork) -> None:
        self._network = network
        self._sizes: dict[Kind, Sizes] = {}
        self._ways: dict[tuple[Kind, Call], Way] = {}  # by kind of input, and by what was requested
        self._trial: _Trial | None = None  # the test of `sizes`, for the `way` requested next

    def sizes(self, kind: Kind, states: State, x: Tensor) -> Sizes:
        """Return the sizes of activations and outputs for inputs like `x`."""
        if kind not in self._sizes:
            self._trial = self._try(kind, states, x)
        return self._sizes[kind]

    def way(self, kind: Kind, states: State, x: Tensor, wanted: Call) -> Way:
        """Return how to run inputs like `x`, as requested if possible."""
        trial, self._trial = self._trial, None
        way = self._ways.get((kind, wanted))
        if way is None:
            images = may_gain_from_channels_last(self._network.module, x)
            if wanted != "vectorised" and not images:
                return Way("reference")  # the plain loop over samples needs no test
            if trial is None or trial.kind != kind:
                trial = self._try(kind, states, x)
            way = self._find_way(trial, wanted, images)
            if bool(torch.isfinite(trial.outputs).all()):  # extreme examples or states say nothing about others
                self._ways[kind, wanted] = way
        return way

    def give_up(self, kind: Kind, states: State, x: Tensor, call: Call) -> Way:
        """Run inputs like `x` one sample at a time by plain overrides from now on; return that way."""
        way = self._ways[kind, call] = self.way(kind, states, x, "reference")
        return way

    def _try(self, kind: Kind, states: State, x: Tensor) -> _Trial:
        """Run two examples, or a large one, by plain overrides, and record the sizes."""
        network = self._network
        few, state = x[: 1 if x[0].numel() > LARGE_ROW else 2], network.batchnorm.far(states)
        with forward_errors_explained(few, "x", tuple(x.shape)):
            outputs = network.prefix.measure(partial(network.reference, few, state), layers_of(states))
        self._sizes[kind] = Sizes(
            bytes_per_row=max(1, network.prefix.largest_output * outputs.element_size() // len(few)),
            output_shape=tuple(outputs.shape[1:]),
            output_dtype=outputs.dtype,
        )
        return _Trial(kind, few, state, outputs)

    def _find_way(self, trial: _Trial, wanted: Call, images: bool) -> Way:
        """Return the first way, fastest first, that gives the same outputs as the test."""
        network = self._network
        last = channels_last(trial.x) if images else trial.x

        def run(rows: Tensor) -> Tensor:
            if wanted == "in_place":
                return network.in_place(rows, trial.state)
            twice = {name: value.expand(2, *value.shape) for name, value in trial.state.items()}
            return network.vectorised(rows, twice)[0]

        call, failure = wanted, None
        if wanted != "reference":
            if images and agrees(lambda: run(last), trial.outputs):
                return Way(wanted, prefix_last=True, tail_last=True)
            try:
                _require_same(run(trial.x), trial.outputs)
            except Exception as error:
                call, failure = "reference", error if wanted == "vectorised" else None
        prefix_last = images and agrees(lambda: network.reference(last, trial.state), trial.outputs)
        return Way(call, prefix_last, tail_last=prefix_last and call == "reference", failure=failure)


def kind_of(states: State, x: Tensor) -> Kind:
    """Return a key for what a test is valid for: inputs of this shape, these sampled tensors, this precision."""
    device = x.device.type
    autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    return x.shape[1:], x.dtype, x.device, frozenset(states), autocast


def layers_of(states: State) -> frozenset[str]:
    """Return the names of the modules whose tensors are overridden."""
    return frozenset([name.rpartition(".")[0] for name in states])


def default_block_bytes(device: torch.device, needed: int) -> int:
    """Return the limit for the activation of a block of examples and samples, in bytes.

    Args:
        device: The network's device.
        needed: The bytes for all examples and samples at once. If they are few, a GPU is not asked for its free memory,
            which takes longer than a layer.
    """
    if device.type == "cuda":
        if needed <= CUDA_SMALL_BYTES:
            return CUDA_SMALL_BYTES
        free, _ = torch.cuda.mem_get_info(device)
        return max(1, min(int(free * CUDA_BLOCK_SHARE), CUDA_BLOCK_BYTES))
    return CPU_BLOCK_BYTES


def _require_same(outputs: Tensor, expected: Tensor) -> None:
    """Refuse outputs that differ by more than rounding, including that of networks with half precision inside."""
    within = 0.1 * float(expected.double().nan_to_num(0, 0, 0).abs().max())
    if not largest_difference(outputs, expected) <= within:
        raise NetworkError("it then gives other numbers; does it use batch-norm statistics outside of their layers?")
