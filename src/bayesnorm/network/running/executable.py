"""Run a network under many states at once.

A *state* overrides some of the network's parameters or buffers by name; n states are held in one dict with a
leading axis of n. `torch.func.functional_call(model, one_state, x)` is the meaning of a draw, and the plain loop
below computes just that. The vectorised way gives the same numbers: batch norm becomes one scale and one shift
per draw, draws are a `vmap` axis, and what comes before the first drawn module is computed once. On a CPU, images run
in the channels-last layout, in which convolutions are faster, as far as the network takes it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ...arguments import as_whole
from ...errors import BayesNormWarning, NetworkError
from ..copying import device_of, dtype_of, private_copy, tensors_of, unwrap
from ..inputs import as_input, call_network
from ..layers import require_python
from ..outputs import select_output
from ..undisturbed import Watched, quiet_vmap
from .affine import AffineBatchNorm, State
from .derivable import derivative_errors_explained, require_derivable
from .plan import Plan, agrees, channels_last, kind_of, require_same
from .prefix import PrefixCache

CPU_BLOCK_BYTES = 4 * 2**20
"""Largest activation of a block on a CPU: beyond the caches, a wider block is slower, not faster."""

CUDA_BLOCK_SHARE = 1 / 16
"""Largest activation of a block on a GPU, as a share of the memory that is free."""


class Executable:
    """A user's network, ready to run under drawn states. The network itself is never touched.

    Args:
        model: The network; torch.compile's and the data-parallel wrappers are looked through.
        output: Which entry to take where the network returns a dict (a key) or a tuple (a position).
    """

    _restart: Callable[[], None]

    def __init__(self, model: nn.Module, output: str | int | None = None) -> None:
        self.model = unwrap(model)
        require_python(self.model)
        position = as_whole(output)
        self.output = output if position is None else position
        self._said = False
        self._built: frozenset[str] = frozenset()
        given = set(vars(self))
        self._build()
        self._built = frozenset(vars(self)) - given

    def __getstate__(self) -> dict[str, Any]:
        # The private copy's forwards belong to this object; a copy of it builds a private copy of its own.
        return {name: value for name, value in vars(self).items() if name not in self._built}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._build()

    @property
    def device(self) -> torch.device:
        self._refresh()
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        self._refresh()
        return self._dtype

    @property
    def network(self) -> nn.Module:
        """The network whose tensors states override."""
        return self.model

    @property
    def names(self) -> frozenset[str]:
        """Names of the tensors that a state may override."""
        return frozenset(self._known)

    def input(self, x: Any, name: str = "x") -> Tensor:
        """Bring inputs to the network's device and dtype; `name` is what messages call them."""
        self._refresh()
        return as_input(x, name, self._device, self._dtype)

    @torch.inference_mode(False)
    @torch.no_grad()
    def point(self, x: Any) -> Tensor:
        """The deterministic network's outputs in evaluation mode, (batch, *out)."""
        x = self.input(x)
        with self._watched.undisturbed(x.device):
            return self._outputs(x).detach()  # a forward may take derivatives of its own

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
        """Outputs under n states, (n, batch, *out).

        Args:
            states: Overrides, each with a leading axis of n.
            x: Inputs, (batch, ...).
            vectorize: False takes the plain loop over draws.
            chunk: Draws per vectorised pass; None chooses by `block_bytes`.
            block_bytes: Memory of the largest activation of a pass; None chooses by device.
        """
        x = self.input(x)
        with self._watched.undisturbed(x.device) as self._restart:
            return self._run(self._fitting(states), x, vectorize, chunk, block_bytes)

    def _run(self, states: State, x: Tensor, vectorize: bool, chunk: int | None, block_bytes: int | None) -> Tensor:
        draws = len(next(iter(states.values())))
        plan = self._plan(states, x)
        budget = block_bytes or self._block_bytes()
        rows = min(len(x), max(1, budget // plan.bytes_per_row))
        if rows < len(x) and not self._rows_independent(x):
            rows = len(x)
        if chunk is None:
            chunk = max(1, budget // (rows * plan.bytes_per_row))
        outputs = torch.empty(draws, len(x), *plan.output_shape, dtype=plan.output_dtype, device=x.device)
        drawn = frozenset(name.rpartition(".")[0] for name in states)
        for start in range(0, len(x), rows):
            part = x[start : start + rows]
            self._about_to_run(start, len(part))
            ahead = channels_last(part) if plan.prefix_last else part
            # A network may draw numbers or remember inputs: the same for every draw, however they are chunked.
            self._restart()
            self._prefix.record(
                partial(call_network, self._pass, ahead, "x"), drawn, plan.prefix_last and not plan.tail_last
            )
            part = ahead if plan.tail_last else part
            try:
                self._fill(outputs[:, start : start + rows], states, part, chunk if vectorize else 1, plan)
            finally:
                self._prefix.forget()
        return outputs

    def _about_to_run(self, start: int, rows: int) -> None:
        """Told before `rows` rows of the input from row `start` on are run under every draw."""

    def derivable(self, state: State, x: Tensor) -> Tensor:
        """Outputs under one state, with derivatives by it: (batch, *out).

        Args:
            state: Means and variances of batch-norm layers, (channels,), or (batch, channels) for others in every row.
            x: Inputs on the network's device.
        """
        self._refresh()
        key = kind_of(state, x)
        new = key not in self._derivable
        with self._watched.undisturbed(x.device, plain=new) as self._restart:
            if new:
                require_derivable(self._affine, self._reference, self._mapped, state, x)
                self._derivable.add(key)
            with derivative_errors_explained():
                return self._mapped(state, x)

    def _under(self, state: State, x: Tensor, special: bool = False) -> Tensor:
        with self._affine.under(state, special) as rest:
            result = functional_call(self._network, rest, (x.clone(),)) if rest else self._network(x.clone())
        return self._select(result, len(x))

    def _selected(self, state: State, x: Tensor) -> Tensor:
        """The reference: outputs under one state by plain overrides."""
        return self._select(functional_call(self._network, state, (x.clone(),)), len(x))

    def _mapped(self, state: State, x: Tensor) -> Tensor:
        self._restart()
        return self._under(state, x, special=True)

    def _reference(self, state: State, x: Tensor) -> Tensor:
        self._restart()
        return self._selected({name: value.to(self._known[name][1]) for name, value in state.items()}, x)

    def _build(self) -> None:
        self._network = self._private()
        self._affine = AffineBatchNorm(self._network)
        self._plans: dict[Any, Plan] = {}
        self._derivable: set[Any] = set()
        self._restart, self._watched = _nothing, Watched(self._network)
        self._device, self._dtype = device_of(self.model), dtype_of(self.model)
        own = tensors_of(self.model).values()
        self._first = next((tensor for tensor in own if tensor.is_floating_point()), next(iter(own)))
        self._first_was = self._first.device, self._first.dtype
        self._known = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors_of(self._network).items()}
        self._held = [
            (mapping, key, value)
            for _, module in self.model.named_modules()
            for mapping in (module._modules, module._parameters, module._buffers)
            for key, value in mapping.items()
        ]
        self._prefix = PrefixCache(self._network)

    def _private(self) -> nn.Module:
        """The copy of the network that is run."""
        return private_copy(self.model)

    def _refresh(self) -> None:
        """Follow a network that was moved or had modules replaced since the private copy was made."""
        # Moving changes a parameter's values in place, and replaces buffers only: a network may have none.
        moved = (self._first.device, self._first.dtype) != self._first_was
        if moved or any(mapping.get(key) is not value for mapping, key, value in self._held):
            self._build()

    def _fill(self, outputs: Tensor, states: State, x: Tensor, chunk: int, plan: Plan) -> None:
        draws, start = len(outputs), 0
        if chunk > 1 and plan.vectorizable:
            while start < draws:
                part = {name: value[start : start + chunk] for name, value in states.items()}
                try:
                    outputs[start : start + chunk] = self._vectorised(part, x)
                except RuntimeError as error:
                    if isinstance(error, torch.OutOfMemoryError):
                        raise
                    self._say_once(error)
                    break
                start += chunk
        for draw in range(start, draws):
            state = {name: value[draw] for name, value in states.items()}
            outputs[draw] = self._looped(state, x)

    def _vectorised(self, states: State, x: Tensor) -> Tensor:
        self._restart()
        with quiet_vmap():
            return self._prefix.replay(lambda: self._vmapped(states, x))

    def _vmapped(self, states: State, x: Tensor) -> Tensor:
        outputs: Tensor = torch.vmap(lambda state: self._under(state, x), randomness="same")(states)
        return outputs

    def _looped(self, state: State, x: Tensor) -> Tensor:
        self._restart()
        return self._prefix.replay(lambda: self._selected(state, x))

    def _plan(self, states: State, x: Tensor) -> Plan:
        key = kind_of(states, x)
        if key not in self._plans:
            few = x[:2]
            one = self._affine.far(states)
            drawn = frozenset(name.rpartition(".")[0] for name in states)
            self._restart()
            output = self._prefix.measure(
                lambda: call_network(partial(self._selected, one), few, "x", tuple(x.shape)), drawn
            )
            two = {name: value.expand(2, *value.shape) for name, value in one.items()}
            vectorizable = True
            try:
                self._restart()
                with quiet_vmap():
                    require_same(self._vmapped(two, few)[0], output)
            except Exception as error:
                vectorizable = False
                self._say_once(error)
            last = channels_last(few) if self._convolves(few) else few
            prefix_last = last is not few and agrees(lambda: self._selected(one, last), output)
            tail_last = prefix_last and vectorizable and agrees(lambda: self._vmapped(two, last)[0], output)
            self._plans[key] = Plan(
                vectorizable=vectorizable,
                prefix_last=prefix_last,
                tail_last=tail_last,
                bytes_per_row=max(1, self._prefix.largest_output * output.element_size() // len(few)),
                output_shape=tuple(output.shape[1:]),
                output_dtype=output.dtype,
            )
        return self._plans[key]

    def _convolves(self, x: Tensor) -> bool:
        """Whether a CPU would run this in fewer steps channels-last."""
        images = x.dim() == 4 and x.device.type == "cpu" and x.is_floating_point()
        return images and any(isinstance(module, nn.Conv2d) for _, module in self._network.named_modules())

    def _pass(self, x: Tensor) -> Any:
        return self._network(x.clone())  # a network may write into its input

    def _rows_independent(self, x: Tensor) -> bool:
        """Whether a row's output is the same in another row's company, so that rows may be run in parts."""
        alone, in_company = self._outputs(x[[0, 0]]), self._outputs(x[[0, 1, -1]])
        scale = in_company.abs().max().clamp_min(1e-6)
        return bool((alone[0] - in_company[0]).abs().max() <= 1e-3 * scale)

    def _outputs(self, x: Tensor) -> Tensor:
        return self._select(call_network(self._pass, x, "x"), len(x))

    def _select(self, result: Any, rows: int) -> Tensor:
        return select_output(result, self.output, rows)

    def _fitting(self, states: State) -> State:
        """States in the dtypes of what they override, or an error where they belong to another architecture."""
        same = True
        for name, value in states.items():
            shape, dtype = self._known.get(name, (None, None))
            if value.shape[1:] != shape:
                raise NetworkError(
                    f"states: {name!r} of shape {tuple(value.shape[1:])} does not fit the network "
                    f"({'no such entry' if shape is None else tuple(shape)}); the posterior belongs to another "
                    "architecture."
                )
            same = same and value.dtype == dtype
        return states if same else {name: value.to(self._known[name][1]) for name, value in states.items()}

    def _block_bytes(self) -> int:
        if self.device.type == "cuda":
            free, _ = torch.cuda.mem_get_info(self.device)
            return max(1, int(free * CUDA_BLOCK_SHARE))
        return CPU_BLOCK_BYTES

    def _say_once(self, error: BaseException) -> None:
        if not self._said:
            self._said = True
            first = str(error).strip().splitlines()
            warnings.warn(
                f"{type(self.model).__name__} cannot be vectorised over draws ({first[0] if first else error!r}); "
                "draws run one by one: same numbers, more time.",
                BayesNormWarning,
                stacklevel=2,
            )


def _nothing() -> None:
    """What a pass begins with outside of `undisturbed`."""
