"""Let an ONNX file that watches its inputs compute the statistics of layers only if it is asked to.

ONNX Runtime computes all outputs of a graph, also those that nobody asks for. Therefore everything that only the
statistics need is moved into a branch, which runs if an optional input is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

SWITCH = "watch_layers"
"""The optional input; it is false by default, and the outputs in the branch are then empty."""


def compute_if_asked(model: Any, outputs: Sequence[str]) -> None:
    """Move what only these outputs need into a branch, and store equal tensors once; changes the model.

    Args:
        model: The model of ONNX.
        outputs: Names of outputs.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    _store_once(graph)
    nodes = [_copied(node) for node in graph.node]
    always = _needed(nodes, [value.name for value in graph.output if value.name not in outputs])
    inside = [node for place, node in enumerate(nodes) if place not in always]
    names = {name: f"{name}_if_asked" for name in outputs}
    for node in inside:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        del node.metadata_props[:]  # lines of code and paths of this machine
        node.ClearField("doc_string")
    types = {value.name: value.type.tensor_type for value in graph.output}
    typed = [helper.make_tensor_value_info(names[name], types[name].elem_type, None) for name in outputs]
    empty = []
    for name in outputs:
        sizes = [0] * len(types[name].shape.dim)
        value = helper.make_tensor("empty", types[name].elem_type, sizes, [])
        empty.append(helper.make_node("Constant", [], [f"{name}_empty"], value=value))
    typed_empty = [helper.make_tensor_value_info(f"{name}_empty", types[name].elem_type, None) for name in outputs]
    branches = {
        "then_branch": helper.make_graph(inside, "if_asked", [], typed),
        "else_branch": helper.make_graph(empty, "otherwise", [], typed_empty),
    }
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes[place] for place in sorted(always))
    graph.node.append(helper.make_node("If", [SWITCH], list(outputs), **branches))
    graph.input.append(helper.make_tensor_value_info(SWITCH, TensorProto.BOOL, []))
    graph.initializer.append(helper.make_tensor(SWITCH, TensorProto.BOOL, [], [False]))
    for value in graph.output:
        if value.name in outputs:
            rank = len(types[value.name].shape.dim)
            value.CopyFrom(helper.make_tensor_value_info(value.name, types[value.name].elem_type, [None] * rank))


def _store_once(graph: Any) -> None:
    """Remove initialisers that equal others; those that are inputs stay."""
    inputs = {value.name for value in graph.input}
    first: dict[tuple[Any, ...], str] = {}
    replaced: dict[str, str] = {}
    remaining = []
    for tensor in graph.initializer:
        key = (tensor.data_type, tuple(tensor.dims), tensor.raw_data)
        if tensor.name in inputs or not tensor.raw_data or key not in first:
            remaining.append(_copied(tensor))
            if tensor.name not in inputs:
                first.setdefault(key, tensor.name)
        else:
            replaced[tensor.name] = first[key]
    del graph.initializer[:]
    graph.initializer.extend(remaining)
    for node in graph.node:
        node.input[:] = [replaced.get(name, name) for name in node.input]


def _needed(nodes: Sequence[Any], outputs: Iterable[str]) -> set[int]:
    """Return the places of the nodes that these outputs need."""
    needed, places = set(outputs), set[int]()
    for place in range(len(nodes) - 1, -1, -1):
        if needed.intersection(nodes[place].output):
            places.add(place)
            needed.update(nodes[place].input)
    return places


def _copied(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())
