"""Run a block of examples under all states, some states at a time, and pass the outputs on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ..inputs import call_network
from ..layout import channels_last
from .affine import State
from .plan import Calls, Planner, Way
from .prefix import PrefixCache

Take = Callable[[slice, slice, Tensor], None]
"""A function of examples, samples and their outputs; see `Executable.each`."""


class Outputs:
    """Stores outputs under n states in `all`, (n, batch, *out); a `Take`."""

    all: Tensor

    def __init__(self, states: State, x: Tensor) -> None:
        self._shape = len(next(iter(states.values()))), len(x)

    def __call__(self, rows: slice, samples: slice, found: Tensor) -> None:
        if not hasattr(self, "all"):
            self.all = found.new_empty(*self._shape, *found.shape[2:])
        self.all[samples, rows] = found


@dataclass(frozen=True)
class Blocks:
    """Runs blocks of examples.

    Args:
        planner: Provides the shape of outputs, and another way to run if one fails.
        prefix: Computes everything before the first sampled module once.
        calls: The ways to call the network.
    """

    planner: Planner
    prefix: PrefixCache
    calls: Calls

    def run(
        self, states: State, x: Tensor, take: Callable[[slice, Tensor], None], chunk: int, way: Way, start: int = 0
    ) -> Way:
        """Run some examples under all states, or from the state `start` on; return the way for the next block.

        Args:
            states: Overrides, each with a leading axis of n.
            x: The examples.
            take: Function of a slice of states and their outputs.
            chunk: Number of states in a vectorised forward pass.
            way: How to run; if that fails, states run one by one by plain overrides from then on.
            start: The first state to run.
        """
        drawn = frozenset(name.rpartition(".")[0] for name in states)
        ahead = channels_last(x) if way.prefix_last else x
        contiguous = way.prefix_last and not way.tail_last
        self.prefix.record(partial(call_network, self.calls.plain, ahead, "x"), drawn, contiguous)
        tail = ahead if way.tail_last else x
        dtype = self.planner.sizes(states, x).output_dtype
        count, failure = len(next(iter(states.values()))), None
        try:
            while start < count and failure is None:
                stop = min(start + chunk, count) if way.call == "vectorised" else start + 1
                try:
                    found = self._outputs({name: value[start:stop] for name, value in states.items()}, tail, way)
                except torch.OutOfMemoryError:
                    # Another process took memory that was free when blocks were planned.
                    if stop - start == 1:
                        raise
                    chunk = (stop - start) // 2
                except RuntimeError as error:
                    # The test on two examples cannot show everything, such as an operation that `vmap` does not support
                    # at this size.
                    if way.call == "plain":
                        raise
                    failure = error
                else:
                    take(slice(start, stop), found.detach().to(dtype))
                    start = stop
        finally:
            self.prefix.forget()
        if failure is None:
            return way
        return self.run(states, x, take, 1, self.planner.give_up(states, x, way.call, failure), start)

    def _outputs(self, states: State, x: Tensor, way: Way) -> Tensor:
        """Return outputs under some states (one, unless many run at once): (states, examples, *out)."""
        if way.call == "vectorised":
            found: Tensor = self.prefix.replay(partial(self.calls.vectorised, x, states))
            return found
        run = self.calls.mapped if way.call == "mapped" else self.calls.plain
        one: Tensor = self.prefix.replay(partial(run, x, {name: value[0] for name, value in states.items()}))
        return one[None]
