"""Record the GPU kernels that a function starts, and replay them together.

Starting the kernels of a small network one by one takes longer than running them. A recording fails if the host has to
wait for a number. It then leaves torch's generator and memory in an invalid state, so check first whether a function
can be recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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
