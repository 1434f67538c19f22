"""Choose how a graph runs samples, and compare it with the network."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ...errors import NetworkError
from ..calling import largest_difference
from ..running.affine import State
from ..running.executable import Executable
from ..several import forward_arguments
from .folding import NotFoldableError
from .sampling import sampled_graph
from .tracing import TRACED_ROWS, trace_network

# The largest difference of a graph's outputs from the network's, relative to the largest output.
TOLERANCE = 1e-3


@torch.no_grad()
def sampled_module(
    executable: Executable, states: State | None, x: Any, group: int | None = None, free: State | None = None
) -> fx.GraphModule:
    """Return a module that runs a network under n states: inputs -> outputs (n, batch, *out).

    It has its own copies of all tensors, and gives the numbers of `Executable.run`.

    Args:
        executable: The network.
        states: Overrides, each with a leading axis of n; None for one forward pass without overrides.
        x: Some inputs, as `Executable.input` returns them.
        group: The number of samples that run together; None for all. See `sampled_graph`.
        free: Running statistics that are further inputs of the module, with their values.
    """
    traced = trace_network(executable, x)
    rows = x[torch.arange(TRACED_ROWS + 2, device=x.device) % len(x)]
    expected = executable.run(states, rows)
    args, kwargs = forward_arguments(rows)
    largest = float("nan")
    for choice in (group,) if free else dict.fromkeys((group, 1)):
        try:
            module = sampled_graph(traced, states, choice, list(free or {}))
            outputs = module(*args, *kwargs.values(), *(free or {}).values())
        except NotFoldableError:
            continue
        except RuntimeError:  # shapes that do not fit, for example if examples depend on each other
            if choice == 1:
                raise
            continue
        scale = expected.abs().max().clamp_min(1e-6)
        if outputs.shape == expected.shape:
            largest = largest_difference(outputs.flatten(0, 1), expected.flatten(0, 1)) / float(scale)
            if largest <= TOLERANCE:
                return module
    raise NetworkError(
        f"model: the traced graph gives other outputs than the network (relative difference {largest:.1e}), so it "
        "cannot be exported. Does the forward depend on the values of its inputs, or on the other examples of a batch?"
    )
