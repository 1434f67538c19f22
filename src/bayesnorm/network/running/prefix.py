"""Compute everything that does not depend on the sample only once.

What a network computes before the first module with sampled state is the same for every sample. `PrefixCache` records
the outputs of the modules that finish before that point (only the largest such modules) and returns them in later
forward passes over the same input. A forward pass under another sample then costs only the rest of the network. It
works on module calls, not on a traced graph, so a forward may contain any Python code.
"""

from __future__ import annotations

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


@dataclass
class _Recorded:
    """The output of a finished call, and its tensors' versions, which show whether they were overwritten since."""

    output: Any
    versions: tuple[int, ...]


# For a finished child of an nn.Sequential whose output only its finished sibling needs.
_PASS_THROUGH = _Recorded(None, ())


@dataclass
class PrefixCache:
    """Wraps the forwards of a private copy of a network; see the module's docstring.

    Modules are identified by their number in `named_modules`.
    """

    network: nn.Module
    largest_output: int = 0  # the most elements of an output in `measure`
    _mode: str = "off"  # what forwards do in addition: "record", "replay", "measure" or nothing
    _drawn: frozenset[int] = frozenset()  # modules with sampled state
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

    def record(self, run: Callable[[], Any], drawn: frozenset[str], contiguous: bool = False) -> None:
        """Run one forward pass up to the first module in `drawn` and store what was computed.

        Args:
            run: Runs the forward pass.
            drawn: Names of the modules with sampled state.
            contiguous: Whether to store outputs in the contiguous layout.
        """
        self._drawn = frozenset(self._numbers[name] for name in drawn)
        self._clone = False
        self._record(run)
        if self._altered():  # a later in-place operation wrote into a stored output: store copies instead
            self._clone = True
            self._record(run)
        if contiguous:
            self._memo = {
                key: kept if kept is _PASS_THROUGH else _recorded(_map_tensors(Tensor.contiguous, kept.output))
                for key, kept in self._memo.items()
            }

    def replay(self, run: Callable[[], Any]) -> Any:
        """Run a forward pass that skips what was recorded."""
        result = self._in_mode("replay", run)
        if not self._clone and self._altered():
            self._clone = True
            self._record(run)
            result = self._in_mode("replay", run)
        return result

    def measure(self, run: Callable[[], Any], drawn: frozenset[str]) -> Any:
        """Run a whole forward pass and set `largest_output`: the most elements of an output from the first sampled
        module on.
        """
        self._drawn = frozenset(self._numbers[name] for name in drawn)
        self._reached, self.largest_output = False, 0
        return self._in_mode("measure", run)

    def keeps(self, tensor: Tensor) -> bool:
        """Return whether a tensor is part of what was recorded."""
        return any(part is tensor for kept in self._memo.values() for part in _tensors(kept.output))

    def forget(self) -> None:
        """Free what was recorded."""
        self._memo.clear()
        self._keys.clear()

    def _record(self, run: Callable[[], Any]) -> None:
        """Run one recording pass, which ends at the first sampled module."""
        self.forget()
        self._stack.clear()
        try:
            self._in_mode("record", run)
        except _PrefixEnd:
            self._stack.clear()

    def _in_mode(self, mode: str, run: Callable[[], Any]) -> Any:
        """Run one forward pass in a mode."""
        self._mode = mode
        self._calls.clear()
        try:
            return run()
        finally:
            self._mode = "off"

    def _altered(self) -> bool:
        """Return whether a stored output was overwritten since."""
        return any(tuple(t._version for t in _tensors(kept.output)) != kept.versions for kept in self._memo.values())

    def _wrapped(self, number: int, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward that follows the mode."""

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._mode == "off":
                return forward(*args, **kwargs)
            if self._mode == "replay":
                key = number, self._calls[number]
                self._calls[number] += 1
                kept = self._memo.get(key)
                if kept is None:
                    return forward(*args, **kwargs)
                if kept is _PASS_THROUGH:
                    return args[0]
                return _map_tensors(torch.clone, kept.output) if self._clone else kept.output
            if self._mode == "measure":
                self._reached = self._reached or number in self._drawn
                output = forward(*args, **kwargs)
                if self._reached:
                    sizes = [t.numel() for t in _tensors(output)]
                    self.largest_output = max([self.largest_output, *sizes])
                return output
            if number in self._drawn:
                raise _PrefixEnd
            self._stack.append(_Frame(module, self._calls.copy(), len(self._keys)))
            output = forward(*args, **kwargs)
            self._finish(number, self._stack.pop(), output)
            return output

        return wrapper

    def _finish(self, number: int, frame: _Frame, output: Any) -> None:
        """Store a finished call's output instead of those of the calls inside it."""
        parent = self._stack[-1] if self._stack else None
        # The user's hooks inside must run in every pass, and tensors with derivatives must stay in their graph.
        if number in self._hooked_inside or any(t.requires_grad for t in _tensors(output)):
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
        kept = _map_tensors(torch.clone, output) if self._clone else output
        self._memo[key] = _recorded(kept)
        self._keys.append(key)
        if parent is not None and type(parent.module).forward is nn.Sequential.forward:
            hooked = number in self._hooked  # a hook sees the input and the output
            if parent.last_child is not None and not hooked:
                self._memo[parent.last_child] = _PASS_THROUGH
            parent.last_child = None if hooked else key


def _recorded(output: Any) -> _Recorded:
    return _Recorded(output, tuple(t._version for t in _tensors(output)))


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield every tensor of a nested value."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)


def _map_tensors(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Apply a function to every tensor of a nested value."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Mapping):
        pairs = [(name, _map_tensors(function, part)) for name, part in value.items()]
        return type(value)(pairs)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map_tensors(function, part) for part in value))
    if isinstance(value, tuple | list):
        return type(value)(_map_tensors(function, part) for part in value)
    return value
