"""Run a network under many states at once.

A *state* overrides some of the network's parameters or buffers by name; n states are one dict with a leading axis of n.
`torch.func.functional_call(model, one_state, x)` defines a sample, and the plain loop below computes exactly that. The
vectorised computation gives the same numbers: batch norm becomes one scale and one shift per sample, samples are a
`vmap` axis, and everything before the first sampled module is computed once. On a CPU, images run in the channels-last
layout, in which convolutions are faster, if the network supports it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn

from ...arguments import as_whole
from ...errors import InputError, WeightsChangedError, warn
from ...progress import Progress
from ..calling import (
    call_network,
    channels_last,
    forward_errors_explained,
    largest_difference,
    with_small_images,
)
from ..collecting.reading import BatchReader, whole_data
from ..copying import Original, device_of, dtype_of, private_copy, require_initialised, unwrap
from ..inputs import InputForm
from ..layers import require_python
from .affine import State
from .plan import Call, Kind, Outputs, Planner, RunOptions, Take, Way, default_block_bytes, kind_of, layers_of
from .private_network import PrivateNetwork, derivative_errors_explained, require_derivable


class Executable:
    """A user's network, ready to run under sampled states; the network itself is never modified.

    It cuts examples into blocks and samples into chunks by memory, and runs each in the way that the `Planner` chose.
    `PrivateNetwork` has the ways to call the network.

    Args:
        model: The network; wrappers of torch.compile and data parallelism are removed.
        output: The entry to take if the network returns a dict (a key) or a tuple (a position).
        forward_kwargs: Further arguments of every forward pass.
    """

    def __init__(
        self,
        model: nn.Module,
        output: str | int | None = None,
        forward_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.forward_kwargs = unwrap(model), dict(forward_kwargs or {})
        require_python(self.model)
        require_initialised(self.model)
        position = as_whole(output)
        self.output = output if position is None else position
        self._warned_of_loop = False  # whether the warning about the plain loop was issued
        self._built: frozenset[str] = frozenset()  # attributes from `_build`, which a copy of this builds again
        before = set(vars(self))
        self._build()
        self._built = frozenset(vars(self)) - before

    def _build(self) -> None:
        """Make the private copy that is run, and everything derived from it."""
        self._network = PrivateNetwork(self._private(), self.output)
        self._planner = Planner(self._network)
        self.form = InputForm(self.model, self.forward_kwargs, self._run_once)
        self._derivable_kinds: set[Kind] = set()  # kinds of input whose outputs have derivatives
        self._independent_rows: dict[Kind, bool] = {}  # by kind of input, whether examples may be split
        self._device, self._dtype = device_of(self.model), dtype_of(self.model)
        self._original = Original(self.model)  # detects when the user moves the network or replaces parts of it

    def _private(self) -> nn.Module:
        """Return the copy of the network that is run; it shares its tensors with the user's network."""
        return private_copy(self.model, self.forward_kwargs)

    def _refresh(self) -> None:
        """Build again if the network was moved or had modules replaced, or if a fork happened during a forward pass."""
        if self._original.changed():
            self._build()

    def __getstate__(self) -> dict[str, Any]:
        # The private copy's forwards belong to this object; a copy of it builds its own private copy.
        return {name: value for name, value in vars(self).items() if name not in self._built}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._build()

    def over(self, model: nn.Module) -> Self:
        """Return the same executable for another network of this architecture."""
        other = object.__new__(type(self))
        other.__setstate__({**self.__getstate__(), "model": unwrap(model)})
        return other

    @property
    def device(self) -> torch.device:
        """Return the device of the network."""
        self._refresh()
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype that floating inputs are converted to."""
        self._refresh()
        return self._dtype

    @property
    def network(self) -> nn.Module:
        """Return the network whose tensors states override."""
        return self.model

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the tensors that a state may override."""
        return frozenset(self._network.overridable)

    @property
    def output_shape(self) -> tuple[int, ...] | None:
        """Return the shape of one example's output, or None before the first forward pass."""
        return self._network.output_shape

    def input(self, x: Any, name: str = "x") -> Tensor:
        """Return inputs on the network's device and in its dtype, without targets.

        Args:
            x: A tensor, or anything that `fit` takes. Data sets and streams are read into memory.
            name: The argument's name in messages.
        """
        return self.inputs_and_targets(x, name)[0]

    def inputs_and_targets(self, x: Any, name: str = "x") -> tuple[Tensor, Any]:
        """Return inputs as `input` does, and the targets in the data; None if there are none."""
        self._refresh()
        x, y = (x, None) if isinstance(x, Tensor) else whole_data(x, self.form, name)
        return self.form.placed(x, name, self._device, self._dtype), y

    def labelled(self, x: Any, y: Any = None, name: str = "x") -> tuple[Tensor, Any]:
        """Return inputs as `input` does, and their targets: `y`, or those in the data.

        Args:
            x: A tensor with `y`, or anything that `fit` takes.
            y: The targets. Default: None, those in the data.
            name: The argument's name in messages.
        """
        x, targets = self.inputs_and_targets(x, name)
        y = targets if y is None else y
        if y is None:
            raise InputError(f"{name} has no targets for {self.form.text}. Pass y, or data such as (x, y).")
        return x, y

    def few(self, x: Tensor) -> Tensor:
        """Return two examples to test with; or all, if the network runs on all nodes of a graph at once."""
        try:
            self.point(x[:2])
        except InputError:
            return x
        return x[:2]

    def reader(self, x: Any, seed: int = 0) -> BatchReader:
        """Return a reader of the batches of data of any kind."""
        self._refresh()
        return BatchReader(x, self.form, "x", seed)

    @torch.inference_mode(False)
    @torch.no_grad()
    def point(self, x: Any) -> Tensor:
        """Return the deterministic network's outputs in evaluation mode, (batch, *out)."""
        x = self.input(x)
        with self._isolated(x):
            return call_network(self._network.reference, x, "x").detach()  # a forward may compute derivatives itself

    @torch.inference_mode(False)
    @torch.no_grad()
    def run(
        self, states: State | None, x: Any, progress: Progress | None = None, **options: Unpack[RunOptions]
    ) -> Tensor:
        """Return outputs under n states, (n, batch, *out).

        Args:
            states: Overrides, each with a leading axis of n; None for one forward pass without overrides.
            x: Inputs, (batch, ...).
            progress: Called with the number of outputs so far and of all outputs.
            options: See `RunOptions`.
        """
        x = self.input(x)
        outputs = Outputs(states, x, progress)
        if states is None:
            self.stream(None, x, outputs, **options)
        else:
            with self._isolated(x, overridden=states):
                self._run(self._network.fitting(states), x, outputs, **options)
        return outputs.all

    @torch.inference_mode(False)
    @torch.no_grad()
    def stream(self, states: State | None, x: Any, take: Take, **options: Unpack[RunOptions]) -> None:
        """Pass outputs under n states to a function block by block, without storing them.

        Args:
            states: Overrides, each with a leading axis of n; None for one forward pass without overrides.
            x: Inputs, (batch, ...).
            take: Function of a slice of examples, a slice of states and their outputs, (states, examples, *out), which
                may be overwritten when it returns. All states of a block of examples come one after the other.
            options: See `RunOptions`.
        """
        x = self.input(x)
        with self._isolated(x, overridden=states or {}):
            if states is not None:
                self._run(self._network.fitting(states), x, take, **options)
                return
            kind = kind_of({}, x)
            needed = len(x) * self._planner.sizes(kind, {}, x).bytes_per_row
            budget = options.get("block_bytes") or default_block_bytes(x.device, needed)
            for rows in self._row_blocks(kind, {}, x, budget):
                take(rows, slice(0, 1), call_network(self._network.reference, x[rows], "x").detach()[None])

    def derivable(self, state: State, x: Tensor) -> Tensor:
        """Return outputs under one state, with derivatives with respect to it: (batch, *out).

        Args:
            state: Means and variances of batch-norm layers, (channels,), or (batch, channels) if they differ between
                examples.
            x: Inputs on the network's device.
        """
        self._refresh()
        kind = kind_of(state, x)
        new = kind not in self._derivable_kinds
        with self._isolated(x, plain=new, overridden=state):
            if new:
                require_derivable(self._network, state, x)
                self._derivable_kinds.add(kind)
            with derivative_errors_explained():
                return self._network.mapped(x, state)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _run_once(self, x: Tensor) -> None:
        """Run the network once, to find out whether it takes these inputs."""
        with self._isolated(x):
            call_network(self._network.reference, x, "x")

    def forbid_weight_changes(self) -> contextlib.AbstractContextManager[object]:
        """Refuse weights that change during several calls that belong together."""
        return self._network.keeper.forbid_weight_changes()

    @contextlib.contextmanager
    def _isolated(self, x: Tensor, **options: Any) -> Iterator[None]:
        """Work on inputs without side effects; refuse weights that change meanwhile. See `TensorKeeper`."""
        network = self._network

        def run_again() -> None:
            network.reference(x[:1])

        try:
            with network.keeper.restore_state(x.device, again=run_again, **options) as network.restart:
                yield
        except WeightsChangedError:
            self._build()  # results of checks made meanwhile may be wrong
            raise

    def _run(
        self,
        states: State,
        x: Tensor,
        take: Take,
        *,
        vectorize: bool = True,
        chunk: int | None = None,
        block_bytes: int | None = None,
    ) -> None:
        """Do what `stream` does, with states and inputs in the network's dtypes."""
        kind, count = kind_of(states, x), len(next(iter(states.values())))
        needed = count * len(x) * self._planner.sizes(kind, states, x).bytes_per_row
        budget = block_bytes or default_block_bytes(x.device, needed)
        blocks = self._row_blocks(kind, states, x, budget)
        if chunk is None:
            chunk = self._samples_at_once(kind, states, x, budget, blocks[0].stop)
        wanted: Call = "vectorised" if vectorize and chunk > 1 else "reference"
        if vectorize and chunk == 1 and self._network.batchnorm.writes(states):
            wanted = "in_place"
        way = self._planner.way(kind, states, x, wanted)
        if way.failure is not None:
            self._warn_of_loop(way.failure)
        for rows in blocks:
            self._note_first_row(rows.start)
            way = self._run_block(kind, states, x[rows], partial(take, rows), chunk, way)

    def _run_block(
        self, kind: Kind, states: State, x: Tensor, take: Callable[[slice, Tensor], None], chunk: int, way: Way
    ) -> Way:
        """Run some examples under all states; return the way for the next block.

        Args:
            kind: The kind of input.
            states: Overrides, each with a leading axis of n.
            x: The examples.
            take: Function of a slice of states and their outputs.
            chunk: Number of states in a vectorised forward pass.
            way: How to run; if that fails, states run one by one by plain overrides from then on.
        """
        network, sampled = self._network, layers_of(states)
        dtype = self._planner.sizes(kind, states, x).output_dtype
        start, count, clone = 0, len(next(iter(states.values()))), False
        recorded: Way | None = None  # the way for which the part before the first sampled module was recorded
        try:
            while start < count:
                if recorded is not way:
                    recorded = way
                    ahead = channels_last(x) if way.prefix_last else x
                    tail = ahead if way.tail_last else x
                    contiguous = way.prefix_last and not way.tail_last
                    with forward_errors_explained(x, "x"), network.prefix.recording(sampled, contiguous, clone):
                        network.reference(ahead)
                    if network.prefix.overwritten():
                        recorded, clone = None, True
                        continue
                several = way.call == "vectorised"
                stop = min(start + chunk, count) if several else start + 1
                try:
                    part = {name: value[start:stop] if several else value[start] for name, value in states.items()}
                    with network.prefix.replaying():
                        outputs = getattr(network, way.call)(tail, part)
                except torch.OutOfMemoryError:
                    # Another process took memory that was free when blocks were planned.
                    if stop - start == 1:
                        raise
                    chunk = (stop - start) // 2
                except Exception as error:
                    # The test on two examples cannot show everything, such as an operation that `vmap` does not support
                    # at this size, or that other examples are not all nodes of a graph.
                    if way.call == "reference" or not isinstance(error, RuntimeError):
                        with forward_errors_explained(x, "x"):
                            raise
                    self._warn_of_loop(error)
                    network.prefix.forget()
                    way = self._planner.give_up(kind, states, x, way.call)
                else:
                    if network.prefix.overwritten():
                        recorded, clone = None, True
                        continue
                    take(slice(start, stop), (outputs if several else outputs[None]).detach().to(dtype))
                    start = stop
        finally:
            network.prefix.forget()
        return way

    def _row_blocks(self, kind: Kind, states: State, x: Tensor, budget: int) -> list[slice]:
        """Return the blocks of examples to run: as many as fit into memory, or all if they depend on each other."""
        rows = min(len(x), self._samples_at_once(kind, states, x, budget, rows=1))
        if rows < len(x) and not self._rows_independent(x):
            rows = len(x)
        return [slice(start, min(start + rows, len(x))) for start in range(0, len(x), rows)]

    def _samples_at_once(self, kind: Kind, states: State, x: Tensor, budget: int, rows: int) -> int:
        """Return the number of states to run at once, by the memory of the largest activation."""
        return max(1, budget // (rows * self._planner.sizes(kind, states, x).bytes_per_row))

    def _note_first_row(self, start: int) -> None:
        """Record the first example of the next block, for layers whose samples differ between examples."""

    def _rows_independent(self, x: Tensor) -> bool:
        """Return whether an example's output is the same in another batch, so that a batch may be split into blocks."""
        kind = kind_of({}, x)
        if kind not in self._independent_rows:
            choices = ([0, 0], [0, 1, -1])
            try:
                alone, in_company = with_small_images(
                    lambda images: [call_network(self._network.reference, images[rows], "x") for rows in choices], x
                )
            except InputError:  # a network of a whole graph
                self._independent_rows[kind] = False
                return False
            scale = in_company.abs().max().clamp_min(1e-6)
            independent = bool(largest_difference(alone[:1], in_company[:1]) <= 1e-3 * scale)
            if not bool(torch.isfinite(scale)):  # such extreme examples say nothing about others
                return independent
            self._independent_rows[kind] = independent
        return self._independent_rows[kind]

    def _warn_of_loop(self, error: BaseException) -> None:
        """Warn once that samples run one by one, and why; refuse changed weights, which would explain it."""
        self._network.keeper.require_unchanged()
        if not self._warned_of_loop:
            self._warned_of_loop = True
            first = str(error).strip().splitlines()
            warn(
                f"{type(self.model).__name__} cannot be vectorised over samples ({first[0] if first else error!r}). "
                "Samples run one by one: the numbers are the same, but it takes longer."
            )
