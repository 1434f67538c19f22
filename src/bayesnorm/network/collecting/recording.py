"""Record forward passes on a GPU once and replay them; see `gpu_graphs.py`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...errors import BayesNormError
from ..gpu_graphs import Recordable, capture_graph
from ..layout import agrees

# Input values above which the kernels themselves keep a GPU busy; a recorded pass keeps its working memory.
MOST_RECORDED = 2**20

# Number of input shapes whose recordings are kept.
MOST_RECORDINGS = 4


@dataclass(frozen=True)
class _Recorded:
    graph: torch.cuda.CUDAGraph
    x: Tensor  # where the graph reads its input
    result: Tensor  # where it writes its result

    def replay(self, x: Tensor) -> Tensor:
        self.x.copy_(x)
        self.graph.replay()
        return self.result.clone()


class RecordedPasses:
    """Runs a forward pass normally for the first input of a shape, and replays a recording from then on.

    A pass with an operation that cannot be recorded, or whose recording gives other numbers, always runs normally.

    Args:
        run: The forward pass, a function of an input and a number of groups; its result must depend only on these and
            on tensors that are changed in place.
    """

    def __init__(self, run: Callable[[Tensor, int], Tensor]) -> None:
        self._run = run
        self._recordings: OrderedDict[tuple[object, ...], _Recorded | None] = OrderedDict()
        self._recordable = True

    def __call__(self, x: Tensor, groups: int, recordable: bool = True) -> Tensor:
        """Return the result of the forward pass.

        Args:
            x: The input.
            groups: Number of groups of examples in it.
            recordable: Whether a replay would do everything that the forward pass does.
        """
        if not (self._recordable and recordable and x.is_cuda and x.numel() <= MOST_RECORDED):
            return self._run(x, groups)
        lowered = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None
        key = tuple(x.shape), x.dtype, groups, lowered
        recorded = self._recordings.get(key)
        if recorded is not None:
            self._recordings.move_to_end(key)
            return recorded.replay(x)
        if key not in self._recordings:  # libraries choose their kernels for this shape
            with Recordable() as seen:
                result = self._run(x, groups)
            self._recordable, self._recordings[key] = seen.recordable, None
            while len(self._recordings) > MOST_RECORDINGS:
                self._recordings.popitem(last=False)
            return result
        result = self._run(x, groups)
        recorded = self._record(x, groups)
        self._recordable = recorded is not None and agrees(partial(recorded.replay, x), result)
        if self._recordable:
            self._recordings[key] = recorded
        else:
            self._recordings.clear()
        return result

    def _record(self, x: Tensor, groups: int) -> _Recorded | None:
        copied = x.clone()
        try:
            graph, result = capture_graph(lambda: self._run(copied, groups))
        except (RuntimeError, BayesNormError):
            return None
        return _Recorded(graph, copied, result)
