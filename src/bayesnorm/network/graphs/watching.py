"""Turn the graph of a network into one that chooses the statistics of its batch-norm layers by their inputs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..collecting.moving import LayerTarget, moved_statistics
from ..layers import BatchNormLayer
from ..running.executable import Executable
from .tracing import TracedNetwork, trace_network
from .writing import GraphWriter

_BATCHNORM: Any = torch.ops.aten._native_batch_norm_legit_no_training.default

CONTROLS = ("center", "expected", "noise", "earlier", "weight", "strength")
"""Further inputs of the graph: the fields of `LayerTarget`, for all layers together."""


def watching_module(executable: Executable, layers: Sequence[BatchNormLayer], x: Any) -> fx.GraphModule:
    """Return a module: inputs and `CONTROLS` -> outputs, then mean, variance, shift and strength at every layer.

    The controls are flat: coordinates (2C,) of all layers, first the means, and two numbers. Means and variances of the
    layers' inputs are (C,) each. The shift is (2C,) and its strength (2L,), double, see `moved_statistics`.

    Args:
        executable: The network.
        layers: The layers, in running order.
        x: Some inputs, as `Executable.input` returns them.
    """
    return watching_graph(trace_network(executable, x), layers)


def watching_graph(traced: TracedNetwork, layers: Sequence[BatchNormLayer]) -> fx.GraphModule:
    """Return the module of `watching_module` for a traced network."""
    writer = GraphWriter(traced)
    writer.open([])
    controls = tuple(writer.graph.placeholder(name) for name in CONTROLS)
    starts = dict(zip((layer.name for layer in layers), _starts(layers), strict=True))
    by_name = {layer.name: layer for layer in layers}
    results: dict[str, list[fx.Node]] = {}
    for node in traced.graph.nodes:
        if node.op == "output":
            continue
        name = _layer(node)
        if name not in by_name:
            writer.copy(node)
            continue
        args: Any = node.args
        position = starts[name], by_name[name].channels, sum(layer.channels for layer in layers), by_name[name].eps
        step = writer.call(_step, (writer.new[args[0]], position, *controls))
        mean, var, *results[name] = (writer.call(operator.getitem, (step, place)) for place in range(6))
        parts = (None if part is None else writer.new[part] for part in args[1:3])
        arguments = (writer.new[args[0]], *parts, mean, var, *args[5:])
        writer.new[node] = writer.call(_BATCHNORM, arguments)
    columns = zip(*(results[layer.name] for layer in layers), strict=True)
    joined = [writer.call(torch.cat, (list(column), axis)) for column, axis in zip(columns, (0, 0, 1, 1), strict=True)]
    flat = [writer.call(torch.flatten, (part,)) for part in joined]
    return writer.finished([writer.new[traced.output], *flat])


def _starts(layers: Sequence[BatchNormLayer]) -> list[int]:
    """Return the first channel of every layer."""
    return [sum(layer.channels for layer in layers[:place]) for place in range(len(layers))]


def _layer(node: fx.Node) -> str:
    """Return the name of the layer that a node normalises for; "" for all other nodes."""
    if node.target is not _BATCHNORM:
        return ""
    mean: Any = node.args[3]
    return str(mean.target).removesuffix(".running_mean") if mean.op == "get_attr" else ""


def _step(
    h: Tensor, position: tuple[int, int, int, float], *controls: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return what a layer normalises by, the moments of its input, the shift (2, C) and its strength (2, 1).

    Args:
        h: The layer's input.
        position: The layer's first channel, its number of channels, that of all layers, and its eps.
        controls: The targets of all layers.
    """
    start, channels, total, eps = position
    over = [0, *range(2, h.dim())]
    mean = h.mean(over, keepdim=True)
    var = (h - mean).square().mean(over)
    mean = mean.flatten()
    coordinates = (part.reshape(2, total)[:, start : start + channels] for part in controls[:4])
    new_mean, new_var, shift, strength = moved_statistics(mean, var, eps, LayerTarget(*coordinates, *controls[4:]))
    return new_mean.to(h.dtype), new_var.to(h.dtype), mean, var, shift, strength[:, None]
