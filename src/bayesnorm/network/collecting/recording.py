"""Passes on a GPU, recorded once and replayed; see `gpu_graphs.py`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...errors import BayesNormError
from ..gpu_graphs import Recordable, record
from ..layout import agrees

# Input numbers above which a GPU is busy with the kernels themselves; a recorded pass keeps the memory it works in.
MOST_RECORDED = 2**20

# Shapes of input whose passes are kept.
KEPT = 4


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    x: Tensor  # where the graph reads its input
    found: Tensor  # where it leaves what it finds

    def replay(self, x: Tensor) -> Tensor:
        self.x.copy_(x)
        self.graph.replay()
        return self.found.clone()


class RecordedPasses:
    """Runs a pass as it is the first time that an input of some shape comes, and replays a recording from then on.

    A pass with an operation that may not be recorded, or whose recording finds something else, runs as it is for ever.

    Args:
        run: The pass, of an input and a number of groups; what it finds must depend on these and on tensors in place.
    """

    def __init__(self, run: Callable[[Tensor, int], Tensor]) -> None:
        self._run = run
        self._kept: OrderedDict[tuple[object, ...], _Recorded | None] = OrderedDict()
        self._recordable = True

    def __call__(self, x: Tensor, groups: int, recordable: bool = True) -> Tensor:
        """Return what the pass finds.

        Args:
            x: The input.
            groups: How many groups of rows it holds.
            recordable: Whether a replay would do all that the pass does.
        """
        if not (self._recordable and recordable and x.is_cuda and x.numel() <= MOST_RECORDED):
            return self._run(x, groups)
        lowered = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        key = tuple(x.shape), x.dtype, groups, lowered
        recorded = self._kept.get(key)
        if recorded is not None:
            self._kept.move_to_end(key)
            return recorded.replay(x)
        if key not in self._kept:  # libraries choose their kernels for this shape
            with Recordable() as seen:
                found = self._run(x, groups)
            self._recordable, self._kept[key] = seen.known, None
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return found
        found = self._run(x, groups)
        recorded = self._record(x, groups)
        self._recordable = recorded is not None and agrees(partial(recorded.replay, x), found)
        if self._recordable:
            self._kept[key] = recorded
        else:
            self._kept.clear()
        return found

    def _record(self, x: Tensor, groups: int) -> _Recorded | None:
        own = x.clone()
        try:
            graph, found = record(lambda: self._run(own, groups))
        except (RuntimeError, BayesNormError):
            return None
        return _Recorded(graph, own, found)
