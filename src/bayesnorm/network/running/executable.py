"""Run a network under many states at once.

A *state* overrides some of the network's parameters or buffers by name; n states are one dict with a leading axis of n.
`torch.func.functional_call(model, one_state, x)` defines a sample, and the plain loop below computes exactly that. The
vectorised computation gives the same numbers: batch norm becomes one scale and one shift per sample, samples are a
`vmap` axis, and everything before the first sampled module is computed once. On a CPU, images run in the channels-last
layout, in which convolutions are faster, if the network supports it.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...arguments import as_whole
from ...errors import BayesNormWarning, NetworkError, WeightsChangedError
from ..copying import Original, device_of, dtype_of, private_copy, require_initialised, tensors_of, unwrap
from ..inputs import as_input, call_network, with_small_images
from ..layers import require_python
from ..layout import largest_difference
from ..locks import fork_generation
from ..outputs import select_output
from ..restoring import TensorKeeper, quiet_vmap
from .affine import AffineBatchNorm, State
from .blocks import Blocks, Outputs, Take
from .derivable import derivative_errors_explained, require_derivable
from .plan import Call, Calls, Planner, default_block_bytes, kind_of
from .prefix import PrefixCache


class Executable:
    """A user's network, ready to run under sampled states; the network itself is never modified.

    There are four ways to call it. `_reference` defines a sample, by plain overrides. `_mapped` computes the same with
    batch norm as affine maps, which have derivatives. `_in_place` is `_mapped` with less memory. `_vectorised` is
    `_mapped` under many states at once.

    Args:
        model: The network; wrappers of torch.compile and data parallelism are removed.
        output: The entry to take if the network returns a dict (a key) or a tuple (a position).
    """

    def __init__(self, model: nn.Module, output: str | int | None = None) -> None:
        self.model = unwrap(model)
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
        self._network = self._private()  # shares its tensors with the user's network
        self._affine = AffineBatchNorm(self._network)  # its batch-norm layers, which can run as affine maps
        # Its forwards, which can skip what is the same for every sample; made after the maps, which it wraps too.
        self._prefix = PrefixCache(self._network)
        self._keeper = TensorKeeper(self._network)  # restores tensors that a forward pass writes to
        self._restart: Callable[[], None] = _nothing  # resets the state for the next forward pass
        calls = Calls(self._reference, self._in_place, self._vectorised)
        self._planner = Planner(self._network, self._affine, self._prefix, calls, self._warn_of_loop)
        self._blocks = Blocks(self._planner, self._prefix, calls)
        self._derivable_kinds: set[Any] = set()  # kinds of input whose outputs have derivatives
        self._independent_rows: dict[Any, bool] = {}  # by kind of input, whether examples may be split
        self.output_shape: tuple[int, ...] | None = None  # of one example's output, once known
        # Shapes and dtypes of what states may override.
        self._known = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors_of(self._network).items()}
        self._device, self._dtype = device_of(self.model), dtype_of(self.model)
        self._original = Original(self.model)  # detects when the user moves the network or replaces parts of it
        self._fork_generation = fork_generation()  # none of them belongs to this copy

    def _private(self) -> nn.Module:
        """Return the copy of the network that is run."""
        return private_copy(self.model)

    def _refresh(self) -> None:
        """Build again if the network was moved or had modules replaced, or if a fork happened during a forward pass."""
        if self._original.changed() or self._fork_generation != fork_generation():
            self._build()

    def __getstate__(self) -> dict[str, Any]:
        # The private copy's forwards belong to this object; a copy of it builds its own private copy.
        return {name: value for name, value in vars(self).items() if name not in self._built}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._build()

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
        return frozenset(self._known)

    def input(self, x: Any, name: str = "x") -> Tensor:
        """Return inputs on the network's device and in its dtype; `name` is the argument's name in messages."""
        self._refresh()
        return as_input(x, name, self._device, self._dtype)

    @torch.inference_mode(False)
    @torch.no_grad()
    def point(self, x: Any) -> Tensor:
        """Return the deterministic network's outputs in evaluation mode, (batch, *out)."""
        x = self.input(x)
        with self._restored(x):
            return call_network(self._reference, x, "x").detach()  # a forward may compute derivatives itself

    @torch.inference_mode(False)
    @torch.no_grad()
    def run(
        self,
        states: State,
        x: Any,
        *,
        vectorize: bool = True,
        chunk: int | None = None,
        block_bytes: int | None = None,
    ) -> Tensor:
        """Return outputs under n states, (n, batch, *out).

        Args:
            states: Overrides, each with a leading axis of n.
            x: Inputs, (batch, ...).
            vectorize: Whether many samples may run at once; False uses the plain loop over samples.
            chunk: Number of samples in a vectorised forward pass; None chooses by `block_bytes`.
            block_bytes: Memory limit for the largest activation of a forward pass; None chooses by device.
        """
        x = self.input(x)
        outputs = Outputs(states, x)
        with self._restored(x, overridden=states):
            self._run(self._fitting(states), x, outputs, vectorize, chunk, block_bytes)
        return outputs.all

    @torch.inference_mode(False)
    @torch.no_grad()
    def each(
        self,
        states: State | None,
        x: Any,
        take: Take,
        *,
        vectorize: bool = True,
        chunk: int | None = None,
        block_bytes: int | None = None,
    ) -> None:
        """Pass outputs under n states to a function block by block, without storing them.

        Args:
            states: Overrides, each with a leading axis of n; None for one forward pass without overrides.
            x: Inputs, (batch, ...).
            take: Function of a slice of examples, a slice of states and their outputs, (states, examples, *out), which
                may be overwritten when it returns. All states of a block of examples come one after the other.
            vectorize, chunk, block_bytes: As in `run`.
        """
        x = self.input(x)
        with self._restored(x, overridden=states or {}):
            if states is not None:
                self._run(self._fitting(states), x, take, vectorize, chunk, block_bytes)
                return
            for rows in self._row_blocks({}, x, block_bytes or default_block_bytes(x.device)):
                take(rows, slice(0, 1), call_network(self._reference, x[rows], "x").detach()[None])

    def derivable(self, state: State, x: Tensor) -> Tensor:
        """Return outputs under one state, with derivatives with respect to it: (batch, *out).

        Args:
            state: Means and variances of batch-norm layers, (channels,), or (batch, channels) if they differ between
                examples.
            x: Inputs on the network's device.
        """
        self._refresh()
        key = kind_of(state, x)
        new = key not in self._derivable_kinds
        with self._restored(x, plain=new, overridden=state):
            if new:
                require_derivable(self._affine, self._reference, self._mapped, state, x)
                self._derivable_kinds.add(key)
            with derivative_errors_explained():
                return self._mapped(x, state)

    def forbid_weight_changes(self) -> contextlib.AbstractContextManager[object]:
        """Refuse weights that change during several calls that belong together."""
        return self._keeper.forbid_weight_changes()

    @contextlib.contextmanager
    def _restored(self, x: Tensor, **options: Any) -> Iterator[None]:
        """Work on inputs without side effects, see `TensorKeeper.restore_state`."""
        try:
            again = partial(self._reference, x[:1])
            with self._keeper.restore_state(x.device, again=again, **options) as self._restart:
                yield
        except WeightsChangedError:
            self._build()  # results of checks made meanwhile may be wrong
            raise

    def _reference(self, x: Tensor, state: State | None = None) -> Tensor:
        """Return outputs under one state by plain overrides; None for the network without overrides."""
        self._restart()
        x = x.clone()  # a network may write into its input
        result = functional_call(self._network, self._in_own_dtypes(state), (x,)) if state else self._network(x)
        outputs = select_output(result, self.output, len(x))
        self.output_shape = tuple(outputs.shape[1:])
        return outputs

    def _mapped(self, x: Tensor, state: State, under_vmap: bool = False) -> Tensor:
        """Return outputs under one state with batch norm as affine maps.

        Args:
            x: Inputs.
            state: Overrides; statistics may be (batch, channels) if they differ between examples.
            under_vmap: Whether the forward pass has begun already and needs no derivatives: batch-norm layers that do
                more than normalise are then overridden.
        """
        if not under_vmap:
            self._restart()
        x = x.clone()
        with self._affine.under(state, special=not under_vmap) as rest:
            result = functional_call(self._network, rest, (x,)) if rest else self._network(x)
        return select_output(result, self.output, len(x))

    def _in_place(self, x: Tensor, state: State) -> Tensor:
        """Return outputs under one state with batch norm as affine maps that overwrite inputs no longer needed."""
        self._restart()
        with self._affine.in_place(self._prefix.keeps):
            return self._mapped(x, state, under_vmap=True)

    def _vectorised(self, x: Tensor, states: State) -> Tensor:
        """Return outputs under many states, (n, batch, *out)."""
        self._restart()
        with quiet_vmap():
            outputs: Tensor = torch.vmap(partial(self._mapped, x, under_vmap=True), randomness="same")(states)
        return outputs

    def _run(
        self, states: State, x: Tensor, take: Take, vectorize: bool, chunk: int | None, block_bytes: int | None
    ) -> None:
        """Do what `each` does, with states and inputs in the network's dtypes."""
        budget = block_bytes or default_block_bytes(x.device)
        blocks = self._row_blocks(states, x, budget)
        if chunk is None:
            chunk = self._samples_at_once(states, x, budget, blocks[0].stop)
        wanted: Call = "vectorised" if vectorize and chunk > 1 else "plain"
        if vectorize and chunk == 1 and self._affine.writes(states):
            wanted = "mapped"
        way = self._planner.way(states, x, wanted)
        for rows in blocks:
            self._note_first_row(rows.start)
            way = self._blocks.run(states, x[rows], partial(take, rows), chunk, way)

    def _row_blocks(self, states: State, x: Tensor, budget: int) -> list[slice]:
        """Return the blocks of examples to run: as many as fit into memory, or all if they depend on each other."""
        rows = min(len(x), self._samples_at_once(states, x, budget, rows=1))
        if rows < len(x) and not self._rows_independent(x):
            rows = len(x)
        return [slice(start, min(start + rows, len(x))) for start in range(0, len(x), rows)]

    def _samples_at_once(self, states: State, x: Tensor, budget: int, rows: int) -> int:
        """Return the number of states to run at once, by the memory of the largest activation."""
        return max(1, budget // (rows * self._planner.sizes(states, x).bytes_per_row))

    def _note_first_row(self, start: int) -> None:
        """Record the first example of the next block, for layers whose samples differ between examples."""

    def _rows_independent(self, x: Tensor) -> bool:
        """Return whether an example's output is the same in another batch, so that a batch may be split into blocks."""
        key = kind_of({}, x)
        if key not in self._independent_rows:
            choices = ([0, 0], [0, 1, -1])
            alone, in_company = with_small_images(
                lambda images: [call_network(self._reference, images[rows], "x") for rows in choices], x
            )
            scale = in_company.abs().max().clamp_min(1e-6)
            independent = bool(largest_difference(alone[:1], in_company[:1]) <= 1e-3 * scale)
            if not bool(torch.isfinite(scale)):  # such extreme examples say nothing about others
                return independent
            self._independent_rows[key] = independent
        return self._independent_rows[key]

    def _fitting(self, states: State) -> State:
        """Return states in the dtypes of what they override; refuse states of another architecture."""
        for name, value in states.items():
            shape, _ = self._known.get(name, (None, None))
            if value.shape[1:] != shape:
                raise NetworkError(
                    f"states: {name!r} of shape {tuple(value.shape[1:])} does not fit the network "
                    f"({'no such entry' if shape is None else tuple(shape)}). The posterior belongs to another "
                    "architecture. Pass the network that it was fitted on."
                )
        return self._in_own_dtypes(states)

    def _in_own_dtypes(self, state: State) -> State:
        """Return a state, or states, in the dtypes of what they override."""
        if all(value.dtype == self._known[name][1] for name, value in state.items()):
            return state  # the same object: a compiled network recognises the same samples by it
        return {name: value.to(self._known[name][1]) for name, value in state.items()}

    def _warn_of_loop(self, error: BaseException) -> None:
        """Warn once that samples run one by one, and why; refuse changed weights, which would explain it."""
        self._keeper.require_unchanged()
        if not self._warned_of_loop:
            self._warned_of_loop = True
            first = str(error).strip().splitlines()
            warnings.warn(
                f"{type(self.model).__name__} cannot be vectorised over samples ({first[0] if first else error!r}). "
                "Samples run one by one: the numbers are the same, but it takes longer.",
                BayesNormWarning,
                stacklevel=2,
            )


def _nothing() -> None:
    """Do nothing: outside of a block of forward passes, nothing needs to be restored."""
