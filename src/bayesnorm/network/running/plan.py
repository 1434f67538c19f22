"""Find out how to run a network on one kind of input, from forward passes over two examples.

The first prediction of a kind runs one forward pass with plain overrides, which gives the shape of the outputs and the
memory per example. A second one, in the way to be used, must give the same numbers. Only if it does not are other ways
tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from ...errors import InputError, NetworkError
from ...progress import Progress
from ..calling import (
    LARGE_ROW,
    agree,
    channels_last,
    errors_and_warnings_ignored,
    forward_errors_explained,
    largest_difference,
    may_gain_from_channels_last,
)
from .affine import State
from .private_network import PrivateNetwork

Take = Callable[[slice, slice, Tensor], None]
"""A function of examples, samples and their outputs; see `Executable.stream`."""


class RunOptions(TypedDict, total=False):
    """How many samples and examples run at once.

    Args:
        vectorize: Whether many samples may run at once; False uses the plain loop over samples.
        chunk: Number of samples in a vectorised forward pass; None chooses by `block_bytes`.
        block_bytes: Memory limit for the largest activation of a forward pass; None chooses by device.
    """

    vectorize: bool
    chunk: int | None
    block_bytes: int | None


class Outputs:
    """Stores outputs under n states in `all`, (n, batch, *out); a `Take`. It reports its progress."""

    all: Tensor

    def __init__(self, states: State | None, x: Tensor, progress: Progress | None = None) -> None:
        self._shape = 1 if states is None else len(next(iter(states.values()))), len(x)
        self._progress, self._stored = progress, 0

    def __call__(self, rows: slice, samples: slice, outputs: Tensor) -> None:
        if not hasattr(self, "all"):
            self.all = outputs.new_empty(*self._shape, *outputs.shape[2:])
        self.all[samples, rows] = outputs
        self._stored += outputs.shape[0] * outputs.shape[1]
        if self._progress is not None:
            self._progress(self._stored, math.prod(self._shape))


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
        if way is not None:
            return way
        network, images = self._network, may_gain_from_channels_last(self._network.module, x)
        if wanted != "vectorised" and not images:
            return Way("reference")  # the plain loop over samples needs no test
        if trial is None or trial.kind != kind:
            trial = self._try(kind, states, x)
        # The first way, fastest first, that gives the same outputs as the test.
        expected, one, several = trial.outputs, trial.state, wanted == "vectorised"
        twice = {name: value.expand(2, *value.shape) for name, value in one.items()}
        run, state = getattr(network, wanted), twice if several else one
        call, failure, prefix_last, tail_last = wanted, None, False, False
        if images and wanted != "reference":
            with errors_and_warnings_ignored():
                outputs = run(channels_last(trial.x), state)
                prefix_last = tail_last = agree(outputs[0] if several else outputs, expected)
        if wanted != "reference" and not tail_last:
            cast = network.casts_convolutions
            for network.casts_convolutions in sorted({cast, cast or several}):
                try:
                    outputs = run(trial.x, state)
                    _require_same(outputs[0] if several else outputs, expected)
                except Exception as error:
                    call, failure = "reference", error if several else None
                else:
                    call, failure = wanted, None
                    break
        if images and not tail_last:
            with errors_and_warnings_ignored():
                prefix_last = agree(network.reference(channels_last(trial.x), one), expected)
            tail_last = prefix_last and call == "reference"
        way = Way(call, prefix_last, tail_last, failure)
        if bool(torch.isfinite(expected).all()):  # extreme examples or states say nothing about others
            self._ways[kind, wanted] = way
        return way

    def give_up(self, kind: Kind, states: State, x: Tensor, call: Call) -> Way:
        """Run inputs like `x` one sample at a time by plain overrides from now on; return that way."""
        way = self._ways[kind, call] = self.way(kind, states, x, "reference")
        return way

    def _try(self, kind: Kind, states: State, x: Tensor) -> _Trial:
        """Run two examples, or a large one, by plain overrides, and record the sizes.

        Networks of a whole graph fail on two of its nodes, so all examples are tried then.
        """
        network, failure = self._network, None
        state = network.batchnorm.far(states)
        for few in (x[: 1 if x[0].numel() > LARGE_ROW else 2], x):
            try:
                with forward_errors_explained(few, "x", tuple(x.shape)), network.prefix.measuring(layers_of(states)):
                    outputs = network.reference(few, state)
                break
            except InputError as error:
                failure = failure or error
        else:
            assert failure is not None
            raise failure
        self._sizes[kind] = Sizes(
            bytes_per_row=max(1, network.prefix.largest_output * outputs.element_size() // len(few)),
            output_shape=tuple(outputs.shape[1:]),
            output_dtype=outputs.dtype,
        )
        return _Trial(kind, few, state, outputs)


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
