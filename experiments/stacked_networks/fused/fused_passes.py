"""Compute batch statistics, and outputs under many samples, without storing activations."""

from __future__ import annotations

import torch
from torch import Tensor

from bayesnorm.network import State
from bayesnorm.tabular.stacked import Dense, Scales, Stack, StackedRows, dropout_masks

from .shape import block_rows, precision, shape_of

# Largest number of scales and shifts that are held at once.
DRAWN = 2**29

# Most programs along the second axis of a launch.
PROGRAMS = 2**16 - 1


def statistics(
    stack: Stack, rows: StackedRows, picked: Tensor, which: Tensor, batch_size: int
) -> tuple[Tensor, Tensor] | None:
    """Return means and biased variances of batches, (E, S, C) each; None if the kernels cannot run these networks.

    Args:
        picked: Different choices of batches among a network's rows, (U, S, M).
        which: The choice of each network, (E,).
    """
    shape = shape_of(stack)
    block = block_rows(batch_size) if shape is not None and shape.norms else None
    if shape is None or block is None or picked.shape[1] > PROGRAMS:
        return None
    from . import kernels

    states = picked.shape[1]
    means = stack.weights.flat.new_empty(len(stack), states, 2 * shape.width)
    variances = torch.empty_like(means)
    places = shape.places(stack.weights)
    try:
        kernels.statistics[(len(stack), states)](
            stack.weights.flat,
            rows.x,
            rows.table.to(torch.int32).contiguous(),
            picked.to(torch.int32).contiguous(),
            which.to(stack.device),
            *scale_tensors(rows.scales),
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


def moments(stack: Stack, states: State, x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return mean and variance of the outputs over sampled states, (E, n, 1) each; None as for `statistics`.

    Args:
        states: Statistics of batch norm, or seeds of dropout.
        x: Inputs in the networks' units, (E, n, inputs).
    """
    shape = shape_of(stack)
    if shape is None:
        return None
    from . import kernels

    rows, samples = x.shape[-2], len(next(iter(states.values())))
    mean, var = (x.new_empty(len(stack), rows) for _ in range(2))
    places = shape.places(stack.weights)
    at_once = max(1, min(PROGRAMS, DRAWN // (4 * samples * shape.width)))
    for start in range(0, len(stack), at_once):
        members = slice(start, min(start + at_once, len(stack)))
        thin, scales = _scales(stack, members, states)
        part = stack.take(torch.arange(members.start, members.stop)) if at_once < len(stack) else stack
        part_places = shape.places(part.weights) if part is not stack else places
        block = 64
        try:
            kernels.moments[((rows + block - 1) // block, members.stop - members.start)](
                part.weights.flat,
                x[members].contiguous(),
                *(part.contiguous() for part in scales),
                scales[0].contiguous() if thin is None else thin.contiguous(),
                mean[members],
                var[members],
                inputs=shape.inputs,
                width=shape.width,
                rows=rows,
                samples=samples,
                **{name: part_places[name] for name in ("at_w1", "at_w2", "at_w3", "at_b3")},
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


def _scales(stack: Stack, members: slice, states: State) -> tuple[Tensor | None, list[Tensor]]:
    """Return all samples as factors of the inputs, and as scale and shift before each ReLU of some networks.

    The factors are (networks, samples, inputs), or None without any; scale and shift are (networks, samples, channels).
    """
    scales: list[Tensor] = []
    if stack.norms:
        for layer in stack.norms:
            mean, var = (states[f"{layer.name}.running_{part}"][:, members].transpose(0, 1) for part in ("mean", "var"))
            gamma, beta = (stack.weights[f"{layer.name}.{part}"][members, None] for part in ("weight", "bias"))
            scale = gamma * torch.rsqrt(var + layer.eps)
            scales += [scale, beta - mean * scale]
        return None, scales
    networks, masks = members.stop - members.start, dropout_masks(stack, states)
    inputs, *hidden = (masks[drop.name].transpose(0, 1).expand(networks, -1, -1) for drop in stack.drops)
    dense = [layer.name for layer in stack.layers if isinstance(layer, Dense)]
    for mask, name in zip(hidden, dense, strict=False):  # max(a + b, 0) * mask = max(a * mask + b * mask, 0)
        scales += [mask, mask * stack.weights[f"{name}.bias"][members, None]]
    return inputs, scales


def scale_tensors(scales: Scales) -> list[Tensor]:
    """Return what networks standardise with: (E, inputs) twice, (E,) twice."""
    parts = scales.x_mean, scales.x_std, scales.y_mean.flatten(), scales.y_std.flatten()
    return [part.contiguous() for part in parts]
