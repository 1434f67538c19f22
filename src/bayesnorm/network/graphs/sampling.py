"""Turn the graph of a network into one that runs it under many samples.

Nodes are *plain* (they do not depend on samples), *sampled*, or *constants*. Plain nodes are computed once, in
particular everything before the first sampled layer. A constant that depends on a sampled tensor, such as a dropout
mask, is computed here, once per sample.

There are two ways to run sampled nodes:

- `folded`: samples are folded into the batch axis, (samples * batch, ...), samples first. A sampled batch norm is one
  affine map per sample. Where unsampled activations meet sampled ones they are repeated, and sizes that depend on the
  number of examples are multiplied by the number of samples. See `FoldedWriter`.
- `unrolled`: every sample has its own copy of the sampled nodes. It supports every operation.

Several groups of folded samples may run one after the other, which needs less memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ...errors import NetworkError
from ..running.affine import State
from .folding import FoldedWriter
from .tracing import TracedNetwork, is_symbolic, is_tensor
from .writing import GraphWriter

# The largest number of nodes of a graph. Larger ones take minutes to export.
MOST_NODES = 30_000


def sampled_graph(
    traced: TracedNetwork, states: State | None, group: int | None = None, free: Sequence[str] = ()
) -> fx.GraphModule:
    """Return a module that runs a network under n states: inputs -> outputs (n, batch, *out).

    Args:
        traced: The network.
        states: Overrides, each with a leading axis of n; None for one forward pass without overrides.
        group: The number of states that are folded into the batch axis together; 1 for a copy of the sampled nodes for
            each state; None for all.
        free: Names of running statistics that are further inputs of the module, in order. Those of sampled layers have
            a leading axis of n.
    """
    count = 1 if not states else len(next(iter(states.values())))
    group = count if group is None else group
    kinds = _Kinds(traced, states or {}, count)
    writer = GraphWriter(traced)
    writer.open(free)
    sampled = [node for node in traced.graph.nodes if node in kinds.sampled]
    if len(sampled) * -(-count // group) > MOST_NODES:
        raise NetworkError(
            f"model: a graph of {count} samples would have {len(sampled) * -(-count // group):,} operations, more than "
            f"{MOST_NODES:,}. Use fewer samples, or a posterior that samples only late layers: posterior.at_layers(1)."
        )
    for node in traced.graph.nodes:
        if node not in kinds.sampled and node not in kinds.varying and node.op != "output":
            writer.copy(node)
    outputs = []
    for start in range(0, count, group):
        part = slice(start, min(start + group, count))
        outputs.append(_written(writer, traced, kinds, sampled, part))
    whole = outputs[0] if len(outputs) == 1 else writer.call(torch.cat, (outputs,))
    return writer.finished(whole)


def _written(writer: GraphWriter, traced: TracedNetwork, kinds: _Kinds, sampled: list[fx.Node], part: slice) -> fx.Node:
    """Write the nodes of some samples; return their outputs, (samples, batch, *out)."""
    size = part.stop - part.start
    if traced.output not in kinds.sampled:  # no sampled tensor has any influence
        return writer.call(torch.stack, ([writer.new[traced.output]] * size,))
    if size == 1 and not writer.free:
        values = {node: value if value is None else value[part.start] for node, value in kinds.varying.items()}
        new = writer.copies(sampled, values)
        return writer.call(torch.unsqueeze, (new[traced.output], 0))
    varying = {node: None if value is None else value[part] for node, value in kinds.varying.items()}
    return FoldedWriter(writer, traced, kinds.sampled, varying, size).write(sampled)


class _Kinds:
    """The kinds of the nodes of a network under n states.

    Args:
        traced: The network.
        states: Overrides, each with a leading axis of n.
        count: n.
    """

    sampled: set[fx.Node]
    """The nodes that depend on inputs and samples."""

    varying: dict[fx.Node, Tensor | None]
    """The values of constants that depend on samples, (n, *shape); None for what is no tensor."""

    def __init__(self, traced: TracedNetwork, states: State, count: int) -> None:
        self.sampled, self.varying = set(), {}
        self._traced, self._count = traced, count
        fixed: set[fx.Node] = set()  # constants that do not depend on samples
        for node in traced.graph.nodes:
            if node.op == "get_attr":
                if node.target in states:
                    self.varying[node] = states[node.target].to(traced.tensors[node.target])
                else:
                    fixed.add(node)
            elif node.op == "call_function":
                parents = set(node.all_input_nodes)
                of_samples = parents & (self.sampled | self.varying.keys())
                if parents <= fixed | self.varying.keys() and not _depends_on_batch(node):
                    if of_samples:
                        self.varying[node] = self._values(node)
                    else:
                        fixed.add(node)
                elif any(not _is_size(parent) for parent in of_samples) and not _is_size(node):
                    self.sampled.add(node)

    def _values(self, node: fx.Node) -> Tensor | None:
        """Return the values of a constant under all samples."""
        if not is_tensor(node.meta.get("val")):
            return None
        results = [self._value(node, index) for index in range(self._count)]
        return torch.stack(results)

    def _value(self, node: Any, index: int) -> Any:
        values = self.varying.get(node)
        if values is not None:
            return values[index]
        if node.op == "get_attr":
            return self._traced.tensors[node.target]
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda parent: self._value(parent, index))
        return node.target(*args, **kwargs)


def _is_size(node: fx.Node) -> bool:
    """Return whether a node is a number, such as the size of a tensor."""
    return isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool | int | float)


def _depends_on_batch(node: fx.Node) -> bool:
    value: Any = node.meta.get("val")
    return any(map(is_symbolic, _sizes(value)))


def _sizes(value: Any) -> Iterator[Any]:
    if is_tensor(value):
        yield from value.shape
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _sizes(part)
    else:
        yield value
