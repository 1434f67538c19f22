"""Run a network under many states at once.

A *state* overrides some of the network's parameters or buffers by name; n states are held in one dict with a
leading axis of n. `torch.func.functional_call(model, one_state, x)` is the meaning of a draw, and the plain loop
below computes just that. The vectorised way gives the same numbers: batch norm becomes one scale and one shift
per draw, draws are a `vmap` axis, and what comes before the first drawn module is computed once.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import BayesNormWarning, NetworkError
from .copying import device_of, dtype_of, private_copy, unwrap
from .inputs import as_input, call
from .layers import find_batchnorm
from .prefix import PrefixCache

State = dict[str, Tensor]
"""Overrides by parameter or buffer name, each (n, *shape)."""

CPU_BLOCK_BYTES = 4 * 2**20
"""Largest activation of a block on a CPU: beyond the caches, a wider block is slower, not faster."""

CUDA_BLOCK_SHARE = 1 / 16
"""Largest activation of a block on a GPU, as a share of the memory that is free."""


@dataclass(frozen=True)
class _Plan:
    """What one look at an input of some shape told about running the network on such inputs."""

    vectorizable: bool
    bytes_per_row: int
    output_shape: tuple[int, ...]
    output_dtype: torch.dtype


class Executable:
    """A user's network, ready to run under drawn states. The network itself is never touched.

    Args:
        model: The network; torch.compile's and the data-parallel wrappers are looked through.
        output: Which entry to take where the network returns a dict (a key) or a tuple (a position).
    """

    def __init__(self, model: nn.Module, output: str | int | None = None) -> None:
        self.model = unwrap(model)
        self.output = output
        self._said = False
        self._affine: dict[str, tuple[Tensor, Tensor]] = {}
        self._build()

    @property
    def device(self) -> torch.device:
        return device_of(self.model)

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self.model)

    def input(self, x: Any) -> Tensor:
        """`x` on the network's device and in its dtype."""
        return as_input(x, "x", self.device, self.dtype)

    @torch.inference_mode(False)
    @torch.no_grad()
    def point(self, x: Any) -> Tensor:
        """The deterministic network's outputs in evaluation mode, (batch, *out)."""
        self._refresh()
        return self._outputs(self.input(x))

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
        self._refresh()
        x = self.input(x)
        states = self._fitting(states)
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
            self._prefix.record(partial(self._pass, part), drawn)
            try:
                self._fill(outputs[:, start : start + rows], states, part, chunk if vectorize else 1, plan)
            finally:
                self._prefix.forget()
        return outputs

    def derivable(self, state: State, x: Tensor) -> Tensor:
        """Outputs under one state, with derivatives by it: (batch, *out).

        Args:
            state: Overrides of batch-norm statistics, (channels,), or (batch, channels) for one per row.
            x: Inputs on the network's device.
        """
        self._refresh()
        return self._under(state, x, self._batchnorm | self._more_than_batchnorm)

    def _under(self, state: State, x: Tensor, batchnorm: dict[str, _BatchNorm]) -> Tensor:
        affine, rest = self._split(state, batchnorm)
        self._affine = affine
        x = x.clone()
        try:
            result = functional_call(self._network, rest, (x,)) if rest else self._network(x)
        finally:
            self._affine = {}
        return self._select(result, len(x))

    def _build(self) -> None:
        self._network = private_copy(self.model)
        found = find_batchnorm(self._network)
        self._batchnorm = {name: module for name, module in found.items() if _only_normalises(module)}
        # A subclass that does more than normalise keeps its own forward and gets its draws as plain overrides.
        self._more_than_batchnorm = {name: found[name] for name in found if name not in self._batchnorm}
        self._plans: dict[Any, _Plan] = {}
        self._independent: dict[Any, bool] = {}
        self._held = self._parts()
        for name, module in found.items():
            module.forward = self._affine_forward(name, module)  # type: ignore[method-assign]
        self._prefix = PrefixCache(self._network)

    def _refresh(self) -> None:
        """Follow a network that was moved or had modules replaced since the private copy was made."""
        parts = self._parts()
        if len(parts) != len(self._held) or any(a is not b for a, b in zip(parts, self._held, strict=True)):
            self._build()

    def _parts(self) -> list[Any]:
        return [
            part
            for module in self.model.modules()
            for part in (module, *module._parameters.values(), *module._buffers.values())
        ]

    def _affine_forward(self, name: str, module: _BatchNorm) -> Any:
        original, plain = module.forward, _only_normalises(module)

        def forward(*args: Any, **kwargs: Any) -> Any:
            drawn = self._affine.get(name)
            if drawn is None:
                return original(*args, **kwargs)
            h = args[0] if args else kwargs["input"]
            scale, shift = (part.view(-1, part.shape[-1], *[1] * (h.dim() - 2)) for part in drawn)
            mapped = torch.addcmul(shift, h, scale).to(h.dtype)
            # A layer that does more than normalise gets the input whose own normalisation is the drawn one.
            return mapped if plain else original(mapped, *args[1:])

        return forward

    def _split(self, state: State, batchnorm: dict[str, _BatchNorm]) -> tuple[dict[str, tuple[Tensor, Tensor]], State]:
        """Batch-norm overrides as (scale, shift) by layer, and the other overrides as they are."""
        affine: dict[str, tuple[Tensor, Tensor]] = {}
        rest = dict(state)
        for name, module in batchnorm.items():
            mean, var = (rest.pop(f"{name}.{key}", None) for key in ("running_mean", "running_var"))
            if mean is None and var is None:
                continue
            own_mean, own_var = module.running_mean, module.running_var
            assert own_mean is not None
            assert own_var is not None
            mean, var = own_mean if mean is None else mean, own_var if var is None else var
            scale = torch.rsqrt(var.to(torch.promote_types(var.dtype, torch.float32)) + module.eps)
            if name in self._more_than_batchnorm:
                scale = scale * torch.sqrt(own_var + module.eps)
                affine[name] = scale, own_mean - mean * scale
                continue
            weight = rest.pop(f"{name}.weight", module.weight)
            bias = rest.pop(f"{name}.bias", module.bias)
            scale = scale if weight is None else scale * weight
            affine[name] = scale, -mean * scale if bias is None else bias - mean * scale
        return affine, rest

    def _fill(self, outputs: Tensor, states: State, x: Tensor, chunk: int, plan: _Plan) -> None:
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
        run = torch.vmap(lambda state: self._under(state, x, self._batchnorm), randomness="same")
        return self._prefix.replay(lambda: run(states))

    def _looped(self, state: State, x: Tensor) -> Tensor:
        result = self._prefix.replay(lambda: functional_call(self._network, state, (x.clone(),)))
        return self._select(result, len(x))

    def _plan(self, states: State, x: Tensor) -> _Plan:
        key = (tuple(x.shape[1:]), x.dtype, x.device, frozenset(states))
        if key not in self._plans:
            few = x[:2]
            one = {name: value[0] for name, value in states.items()}
            drawn = frozenset(name.rpartition(".")[0] for name in states)
            output = self._prefix.measure(
                lambda: self._select(call(self._bound(one), few, "x", tuple(x.shape)), len(few)), drawn
            )
            two = {name: value[:1].expand(2, *value.shape[1:]) for name, value in states.items()}
            vectorizable = True
            try:
                torch.vmap(lambda state: self._under(state, few, self._batchnorm), randomness="same")(two)
            except Exception as error:
                vectorizable = False
                self._say_once(error)
            self._plans[key] = _Plan(
                vectorizable=vectorizable,
                bytes_per_row=max(1, self._prefix.largest_output * output.element_size() // len(few)),
                output_shape=tuple(output.shape[1:]),
                output_dtype=output.dtype,
            )
        return self._plans[key]

    def _pass(self, x: Tensor) -> Any:
        return self._network(x.clone())  # a network may write into its input

    def _bound(self, state: State) -> Any:
        return lambda x: functional_call(self._network, state, (x.clone(),))

    def _rows_independent(self, x: Tensor) -> bool:
        """Whether a row's output is the same in another row's company, so that rows may be run in parts."""
        key = (tuple(x.shape[1:]), x.dtype, x.device)
        if key not in self._independent:
            alone, in_company = self._outputs(x[[0, 0]]), self._outputs(x[[0, 1, -1]])
            scale = in_company.abs().max().clamp_min(1e-6)
            close = (alone[0] - in_company[0]).abs().max() <= 1e-3 * scale
            self._independent[key] = bool(close)
        return self._independent[key]

    def _outputs(self, x: Tensor) -> Tensor:
        return self._select(call(self._pass, x, "x"), len(x))

    def _select(self, result: Any, rows: int) -> Tensor:
        """The chosen entry of what the network returned, checked to hold one output per row."""
        entries: dict[Any, Any] = {}
        if isinstance(result, Mapping):
            entries = dict(result)
        elif isinstance(result, tuple | list):
            entries = dict(enumerate(result))
        result = entries.get(self.output, result)
        if not isinstance(result, Tensor):
            raise NetworkError(
                f"output: {self.output!r} was given and the network returns {type(result).__name__} with entries "
                f"{', '.join(map(repr, entries)) or 'unknown'}; name one of them with output=."
            )
        if result.dim() == 0 or result.shape[0] != rows:
            raise NetworkError(
                f"model: returned shape {tuple(result.shape)} for {rows} inputs; the first axis must hold one entry "
                "per input."
            )
        return result

    def _fitting(self, states: State) -> State:
        """States in the dtypes of what they override, or an error where they belong to another architecture."""
        known = {**dict(self._network.named_parameters()), **dict(self._network.named_buffers())}
        for name, value in states.items():
            if name not in known or value.shape[1:] != known[name].shape:
                found = tuple(known[name].shape) if name in known else "no such entry"
                raise NetworkError(
                    f"states: {name!r} of shape {tuple(value.shape[1:])} does not fit the network ({found}); the "
                    "posterior belongs to another architecture."
                )
        return {name: value.to(known[name].dtype) for name, value in states.items()}

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


def _only_normalises(module: _BatchNorm) -> bool:
    known = _BatchNorm.forward, nn.SyncBatchNorm.forward
    return "forward" not in vars(module) and type(module).forward in known
