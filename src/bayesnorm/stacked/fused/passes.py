"""Batch statistics, and outputs under many draws, without holding what lies between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .shape import block_rows, precision, shape_of

if TYPE_CHECKING:
    from ..draws import StackedDraws
    from ..rows import Scales, StackedRows
    from ..stack import Stack

DRAWN = 2**29
"""Numbers of scales and shifts that are held at once."""

PROGRAMS = 2**16 - 1
"""Most programs along the second axis of a launch."""


def statistics(
    stack: Stack, rows: StackedRows, picked: Tensor, which: Tensor, batch_size: int
) -> tuple[Tensor, Tensor] | None:
    """Means and biased variances of batches of rows, (E, S, C) each; None where the kernels are for other
    networks, or the GPU has no room for them.

    Args:
        picked: Different choices of batches among a network's rows, (U, S, M).
        which: Which of them each network has, (E,).
    """
    shape = shape_of(stack)
    block = block_rows(batch_size) if shape is not None and shape.norms else None
    if shape is None or block is None or picked.shape[1] > PROGRAMS:
        return None
    from . import kernels

    states = picked.shape[1]
    means = stack.weights.flat.new_empty(len(stack), states, 2 * shape.width)
    variances = torch.empty_like(means)
    scales = units_of(rows.scales, len(stack), stack.weights.flat, shape.inputs)
    places = shape.places(stack.weights)
    try:
        kernels.statistics[(len(stack), states)](
            stack.weights.flat,
            rows.x,
            rows.table.to(torch.int32).contiguous(),
            picked.to(torch.int32).contiguous(),
            which.to(stack.device),
            *(scale.contiguous() for scale in scales),
            means,
            variances,
            inputs=shape.inputs,
            width=shape.width,
            longest=rows.table.shape[1],
            states=states,
            eps=shape.eps,
            **{name: places[name] for name in ("at_w1", "at_g1", "at_b1", "at_w2")},
            D=shape.D,
            H=shape.H,
            blocks=batch_size // block,
            R=block,
            SINGLE=batch_size == block,
            PRECISION=precision(),
            num_warps=shape.warps,
        )
    except kernels.OutOfResources:
        return None
    return means, variances


def moments(stack: Stack, draws: StackedDraws, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and variance over draws of the outputs, (E, n, 1) each; None as for `statistics`."""
    shape = shape_of(stack)
    if shape is None:
        return None
    from . import kernels

    rows = x.shape[-2]
    x = x.expand(len(stack), rows, shape.inputs)
    mean, var = (x.new_empty(len(stack), rows) for _ in range(2))
    places = shape.places(stack.weights)
    at_once = max(1, min(PROGRAMS, DRAWN // (4 * draws.draws * shape.width)))
    for start in range(0, len(stack), at_once):
        members = slice(start, min(start + at_once, len(stack)))
        found = draws.scales(stack, members)
        if found is None:
            return None
        thin, scales = found[0], [part.contiguous() for part in found[1]]
        part = stack.take(torch.arange(members.start, members.stop)) if at_once < len(stack) else stack
        own = shape.places(part.weights) if part is not stack else places
        block = 64
        try:
            kernels.moments[((rows + block - 1) // block, members.stop - members.start)](
                part.weights.flat,
                x[members].contiguous(),
                *scales,
                scales[0] if thin is None else thin.contiguous(),
                mean[members],
                var[members],
                inputs=shape.inputs,
                width=shape.width,
                rows=rows,
                draws=draws.draws,
                **{name: own[name] for name in ("at_w1", "at_w2", "at_w3", "at_b3")},
                D=shape.D,
                H=shape.H,
                R=block,
                THIN=thin is not None,
                PRECISION=precision(),
                num_warps=4,
            )
        except kernels.OutOfResources:
            return None
    return mean.unsqueeze(-1), var.unsqueeze(-1)


def units_of(scales: Scales | None, networks: int, like: Tensor, inputs: int) -> tuple[Tensor, ...]:
    """What networks standardise with: (E, inputs) twice, (E,) twice."""
    if scales is None:
        return (
            like.new_zeros(networks, inputs),
            like.new_ones(networks, inputs),
            like.new_zeros(networks),
            like.new_ones(networks),
        )
    return scales.x_mean, scales.x_std, scales.y_mean.flatten(), scales.y_std.flatten()
