"""Compute once what does not depend on the draw.

Whatever a network computes before it reaches the first module whose state is drawn is the same for every
draw. `PrefixCache` records the outputs of the modules that finish before that point (the largest such
modules only) and hands them out again in later passes over the same input, so that a pass under another draw costs
only the tail. It works on module calls, not on a traced graph, so any Python in a forward is fine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Key = tuple[int, int]
"""(module number, how many times it was called before)."""


class _PrefixEnd(BaseException):
    """Raised to leave a recording pass at the first drawn module; no `except Exception` may swallow it."""


@dataclass
class _Frame:
    """One module call that is under way in a recording pass."""

    module: nn.Module
    calls_before: Counter[int]  # how often each module had been called when it began
    keys_before: int  # how many calls' outputs were kept then
    last_child: Key | None = None  # the latest finished call inside an nn.Sequential, whose output only the next needs


@dataclass
class _Recorded:
    """The output of a finished call, and the versions of its tensors, which tell whether they were written to since."""

    output: Any
    versions: tuple[int, ...]


# For a finished child of an nn.Sequential whose output only its finished sibling needs.
_PASS_THROUGH = _Recorded(None, ())


@dataclass
class PrefixCache:
    """Wraps the forwards of a private copy of a network; see the module's docstring.

    Modules are known by their number in `named_modules`.
    """

    network: nn.Module
    largest_output: int = 0  # the most elements of an output that `measure` saw
    _mode: str = "off"  # what forwards do beside running: "record", "replay", "measure" or nothing
    _drawn: frozenset[int] = frozenset()  # modules whose state is drawn
    _reached: bool = False  # whether `measure` has come to one of them
    _clone: bool = False  # whether kept outputs are written to later, so that copies of them are handed out
    _calls: Counter[int] = field(default_factory=Counter)  # how often each module was called in this pass
    _keys: list[Key] = field(default_factory=list)  # calls whose outputs are kept, in the order of their end
    _memo: dict[Key, _Recorded] = field(default_factory=dict)  # their outputs
    _stack: list[_Frame] = field(default_factory=list)  # calls under way in a recording pass, the innermost last

    def __post_init__(self) -> None:
        named = dict(self.network.named_modules())
        self._numbers = {name: number for number, name in enumerate(named)}
        # Hooks of the user's: a module that has some, and one that has others inside which have some.
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
        """Make one pass up to the first module in `drawn` and keep what was computed.

        Args:
            run: Makes the pass.
            drawn: Names of the modules whose state is drawn.
            contiguous: Whether to keep outputs in the contiguous layout, whatever layout they come in.
        """
        self._drawn = frozenset(self._numbers[name] for name in drawn)
        self._clone = False
        self._record(run)
        if self._altered():  # a later in-place operation wrote into a kept output: keep copies instead
            self._clone = True
            self._record(run)
        if contiguous:
            self._memo = {
                key: kept if kept is _PASS_THROUGH else _recorded(_map_tensors(Tensor.contiguous, kept.output))
                for key, kept in self._memo.items()
            }

    def replay(self, run: Callable[[], Any]) -> Any:
        """Make a pass that skips what was recorded."""
        result = self._in_mode("replay", run)
        if not self._clone and self._altered():
            self._clone = True
            self._record(run)
            result = self._in_mode("replay", run)
        return result

    def measure(self, run: Callable[[], Any], drawn: frozenset[str]) -> Any:
        """Make a whole pass; let `largest_output` be the most elements of any output from the first drawn module on."""
        self._drawn = frozenset(self._numbers[name] for name in drawn)
        self._reached, self.largest_output = False, 0
        return self._in_mode("measure", run)

    def keeps(self, tensor: Tensor) -> bool:
        """Tell whether a tensor is part of what was recorded."""
        return any(part is tensor for kept in self._memo.values() for part in _tensors(kept.output))

    def forget(self) -> None:
        """Free what was recorded."""
        self._memo.clear()
        self._keys.clear()

    def _record(self, run: Callable[[], Any]) -> None:
        """Make one recording pass, which ends at the first drawn module."""
        self.forget()
        self._stack.clear()
        try:
            self._in_mode("record", run)
        except _PrefixEnd:
            self._stack.clear()

    def _in_mode(self, mode: str, run: Callable[[], Any]) -> Any:
        """Make one pass in which forwards do what `mode` says."""
        self._mode = mode
        self._calls.clear()
        try:
            return run()
        finally:
            self._mode = "off"

    def _altered(self) -> bool:
        """Tell whether a kept output was written to since."""
        return any(tuple(t._version for t in _tensors(kept.output)) != kept.versions for kept in self._memo.values())

    def _wrapped(self, number: int, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward that does what the mode says."""

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
        """Keep a finished call's output instead of those of the calls inside it."""
        parent = self._stack[-1] if self._stack else None
        # The user's hooks in there must see every pass; and what a forward takes derivatives of must be in their graph.
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
            hooked = number in self._hooked  # a hook looks at what goes in and comes out
            if parent.last_child is not None and not hooked:
                self._memo[parent.last_child] = _PASS_THROUGH
            parent.last_child = None if hooked else key


def _recorded(output: Any) -> _Recorded:
    return _Recorded(output, tuple(t._version for t in _tensors(output)))


def _tensors(value: Any) -> Iterator[Tensor]:
    """Give every tensor of a nested value."""
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
