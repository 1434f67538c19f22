"""Record the GPU kernels that a function starts, and replay them together.

Starting the kernels of a small network one by one takes longer than running them. A recording fails if the host has to
wait for a number. It then leaves torch's generator and memory in an invalid state, so check first whether a function
can be recorded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import BayesNormError
from .calling import agrees

Result = TypeVar("Result")

# Operations that start kernels, or only create views, and never make the host wait.
_NAMES = """
abs _adaptive_avg_pool2d _adaptive_avg_pool3d add add_ addcmul addmm alias amax amin arange as_strided avg_pool1d
avg_pool2d avg_pool3d baddbmm _batch_norm_no_update bernoulli bernoulli_ bmm cat ceil clamp clamp_ clamp_max
clamp_min clone constant_pad_nd convolution copy_ cudnn_batch_norm cudnn_convolution detach div div_ elu elu_
embedding empty empty_like erf exp expand fill_ flip floor full full_like gelu glu hardsigmoid hardsigmoid_
hardswish hardswish_ hardtanh hardtanh_ leaky_relu leaky_relu_ log log1p _log_softmax logsumexp
max_pool2d_with_indices max_pool3d_with_indices maximum mean minimum miopen_batch_norm mish mish_ mm mul mul_
native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training
native_dropout native_group_norm native_layer_norm neg new_empty new_full new_ones new_zeros ones ones_like permute
pixel_shuffle pow pow_ prelu _prelu_kernel promote_types rand rand_like randn randn_like reciprocal
reflection_pad1d reflection_pad2d relu relu_ repeat replication_pad1d replication_pad2d roll rsqrt rsqrt_ rsub
_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention select sigmoid sigmoid_ silu silu_ slice
_softmax softplus split split_with_sizes sqrt square squeeze stack sub sub_ sum t tanh tanh_ threshold threshold_
_to_copy transpose unbind unfold _unsafe_view unsqueeze upsample_bilinear2d upsample_nearest1d upsample_nearest2d var
var_mean view where zeros zeros_like
"""
_RECORDABLE, _COPIES = frozenset(_NAMES.split()), frozenset(["_to_copy", "copy_"])


class Recordable(TorchDispatchMode):
    """Watch operations while a function runs in this thread; `recordable` tells whether all of them can be recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.recordable = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.recordable:
            name, tensors = func.overloadpacket.__name__, [v for v in (*args, result) if isinstance(v, Tensor)]
            # A number may be a tensor on the host, which is read immediately; anything else would have to be copied.
            here = all(tensor.is_cuda or (tensor.dim() == 0 and name not in _COPIES) for tensor in tensors)
            self.recordable = here and name in _RECORDABLE and func.namespace == "aten"
        return result


def capture_graph(run: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Return a graph that does what a function does, and the function's result, which every replay overwrites.

    The function runs twice without computing anything. It must have run before, so that libraries have chosen their
    kernels. If it cannot be recorded, the RuntimeError, or the function's own error, is raised.
    """
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    state = generator.graphsafe_get_state()
    # A failed recording leaves its generator unusable, so a first, discarded recording gets a copy.
    generator.graphsafe_set_state(state.clone_state())
    try:
        _captured(run)
    finally:
        generator.graphsafe_set_state(state)
    return _captured(run)


def _captured(run: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        # Other threads may continue.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = run()
    except Exception:
        torch.cuda.set_stream(stream)  # torch leaves it changed
        raise
    return graph, result


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
