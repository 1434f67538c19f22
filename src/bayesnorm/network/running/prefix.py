"""Compute everything that does not depend on the sample only once.

What a network computes before the first module with sampled state is the same for every sample. `PrefixCache` records
the outputs of the modules that finish before that point (only the largest such modules) and returns them in later
forward passes over the same input. A forward pass under another sample then costs only the rest of the network. It
works on module calls, not on a traced graph, so a forward may contain any Python code.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Key = tuple[int, int]
"""(module number, number of earlier calls)."""


class _PrefixEnd(BaseException):
    """Raised to leave a recording pass at the first sampled module; `except Exception` cannot catch it."""


@dataclass
class _Frame:
    """A module call that is running in a recording pass."""

    module: nn.Module
    calls_before: Counter[int]  # number of calls of each module when it began
    keys_before: int  # number of stored outputs at that time
    last_child: Key | None = (
        None  # the latest finished call inside an nn.Sequential; only the next call needs its output
    )


class _Recorded:
    """The output of a finished call, and its tensors' versions, which show whether they were overwritten since."""

    def __init__(self, output: Any, tensors: list[Tensor]) -> None:
        self.output, self.tensors = output, tensors
        self.versions = list(map(_VERSION, tensors))


_VERSION = operator.attrgetter("_version")

# For a finished child of an nn.Sequential whose output only its finished sibling needs.
_PASS_THROUGH = _Recorded(None, [])


@dataclass
class PrefixCache:
    """Wraps the forwards of a private copy of a network; see the module's docstring.

    Modules are identified by their number in `named_modules`.
    """

    network: nn.Module
    largest_output: int = 0  # the most elements of an output in `measure`
    _mode: str = "off"  # what forwards do in addition: "record", "replay", "measure" or nothing
    _sampled: frozenset[int] = frozenset()  # modules with sampled state
    _reached: bool = False  # whether `measure` has reached one of them
    _clone: bool = False  # whether stored outputs are overwritten later, so that copies are returned
    _calls: Counter[int] = field(default_factory=Counter)  # number of calls of each module in this forward pass
    _keys: list[Key] = field(default_factory=list)  # calls whose outputs are stored, in the order of their end
    _memo: dict[Key, _Recorded] = field(default_factory=dict)  # their outputs
    _stack: list[_Frame] = field(default_factory=list)  # calls that are running in a recording pass, the innermost last

    def __post_init__(self) -> None:
        named = dict(self.network.named_modules())
        self._numbers = {name: number for number, name in enumerate(named)}
        # The user's hooks: modules that have hooks, and modules that contain such modules.
        hooked = {id(module) for module in named.values() if module._forward_hooks or module._forward_pre_hooks}
        self._hooked = {number for number, module in enumerate(named.values()) if id(module) in hooked}
        self._hooked_inside = {
            number
            for number, module in enumerate(named.values())
            if any(id(inner) in hooked for _, inner in module.named_modules() if inner is not module)
        }
        for number, module in enumerate(named.values()):
            module.forward = self._wrapped(number, module, module.forward)

    @contextlib.contextmanager
    def recording(self, sampled: frozenset[str], contiguous: bool = False, clone: bool = False) -> Iterator[None]:
        """Store what the forward pass in the block computes. It ends at the first module in `sampled`.

        Args:
            sampled: Names of the modules with sampled state.
            contiguous: Whether to store outputs in the contiguous layout.
            clone: Whether to store copies, because operations overwrite outputs; see `overwritten`.
        """
        self.forget()
        self._stack.clear()
        self._sampled, self._clone = frozenset([self._numbers[name] for name in sampled]), clone
        with contextlib.suppress(_PrefixEnd), self._in_mode("record"):
            yield
        self._stack.clear()
        if contiguous and not self.overwritten():
            for key, recorded in self._memo.items():
                if recorded is not _PASS_THROUGH:
                    output = _map_tensors(Tensor.contiguous, recorded.output)
                    self._memo[key] = _Recorded(output, _tensors(output))

    def replaying(self) -> contextlib.AbstractContextManager[None]:
        """Skip what was recorded in the forward pass in the block; do not use its result if that is `overwritten`."""
        return self._in_mode("replay")

    @contextlib.contextmanager
    def measuring(self, sampled: frozenset[str]) -> Iterator[None]:
        """Set `largest_output` to the most elements of an output from the first sampled module on, if there is one."""
        self._sampled = frozenset([self._numbers[name] for name in sampled])
        self._reached, self.largest_output = not sampled, 0
        with self._in_mode("measure"):
            yield

    @contextlib.contextmanager
    def _in_mode(self, mode: str) -> Iterator[None]:
        self._calls.clear()
        self._mode = mode
        try:
            yield
        finally:
            self._mode = "off"

    def keeps(self, tensor: Tensor) -> bool:
        """Return whether a tensor is part of what was recorded."""
        return any(part is tensor for recorded in self._memo.values() for part in recorded.tensors)

    def forget(self) -> None:
        """Free what was recorded."""
        self._memo.clear()
        self._keys.clear()

    def overwritten(self) -> bool:
        """Return whether a stored output was overwritten since, so that copies must be recorded."""
        if self._clone:
            return False
        return any(list(map(_VERSION, recorded.tensors)) != recorded.versions for recorded in self._memo.values())

    def _wrapped(self, number: int, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward that follows the mode."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._mode == "off":
                return forward(*args, **kwargs)
            if self._mode == "replay":
                key = number, self._calls[number]
                self._calls[number] += 1
                recorded = self._memo.get(key)
                if recorded is None:
                    return forward(*args, **kwargs)
                if recorded is _PASS_THROUGH:
                    return args[0]
                return _map_tensors(torch.clone, recorded.output) if self._clone else recorded.output
            if self._mode == "measure":
                self._reached = self._reached or number in self._sampled
                output = forward(*args, **kwargs)
                if self._reached:
                    sizes = [tensor.numel() for tensor in _tensors(output)]
                    self.largest_output = max([self.largest_output, *sizes])
                return output
            if number in self._sampled:
                raise _PrefixEnd
            self._stack.append(_Frame(module, self._calls.copy(), len(self._keys)))
            output = forward(*args, **kwargs)
            self._finish(number, self._stack.pop(), output)
            return output

        return wrapper

    def _finish(self, number: int, frame: _Frame, output: Any) -> None:
        """Store a finished call's output instead of those of the calls inside it."""
        parent = self._stack[-1] if self._stack else None
        tensors = _tensors(output)
        # The user's hooks inside must run in every pass, and tensors with derivatives must stay in their graph.
        if number in self._hooked_inside or any(tensor.requires_grad for tensor in tensors):
            self._calls[number] += 1
            if parent is not None:
                parent.last_child = None
            return
        for inner in self._keys[frame.keys_before :]:
            del self._memo[inner]
        del self._keys[frame.keys_before :]
        self._calls = frame.calls_before
        key = number, self._calls[number]
        self._calls[number] += 1
        if self._clone:
            output = _map_tensors(torch.clone, output)
            tensors = _tensors(output)
        self._memo[key] = _Recorded(output, tensors)
        self._keys.append(key)
        if parent is not None and type(parent.module).forward is nn.Sequential.forward:
            hooked = number in self._hooked  # a hook sees the input and the output
            if parent.last_child is not None and not hooked:
                self._memo[parent.last_child] = _PASS_THROUGH
            parent.last_child = None if hooked else key


def _tensors(value: Any) -> list[Tensor]:
    """Return every tensor of a nested value."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    elif dataclasses.is_dataclass(value):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return []


def _map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to every tensor of a nested value."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        pairs = [(name, _map_tensors(function, part)) for name, part in value.items()]
        return type(value)(pairs)  # type: ignore[call-arg]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(changed, field.name, _map_tensors(function, getattr(value, field.name)))
        return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_tensors(function, part) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(_map_tensors(function, part) for part in value)
    return value
