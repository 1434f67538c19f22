"""Write a new graph from parts of a traced one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn

from .tracing import TracedNetwork


class GraphWriter:
    """A new graph that is written node by node.

    Args:
        traced: The network whose nodes are copied.
    """

    def __init__(self, traced: TracedNetwork) -> None:
        self.graph, self.new = fx.Graph(), dict[fx.Node, fx.Node]()
        self._traced, self._root = traced, nn.Module()
        self.free: dict[str, fx.Node] = {}  # tensors of the network that are inputs of the new graph
        self._names: dict[int, tuple[str, Tensor]] = {}  # of tensors that are in the graph, by id, which they keep

    def open(self, names: Sequence[str]) -> None:
        """Copy the inputs, and let these tensors of the network be further inputs, in order."""
        for node in self._traced.inputs:
            self.new[node] = self.graph.node_copy(node, self.new.__getitem__)
        for name in names:
            self.free[name] = self.graph.placeholder(f"free_{len(self.free)}")

    def copy(self, node: fx.Node) -> None:
        """Copy a node that does not depend on samples."""
        if node.op == "placeholder":
            return
        if node.op == "get_attr" and node.target in self.free:
            self.new[node] = self.free[str(node.target)]
        elif node.op == "get_attr":
            if node.users:
                self.new[node] = self.tensor(self._traced.tensors[str(node.target)])
        else:
            self.new[node] = self.graph.node_copy(node, self.new.__getitem__)

    def copies(self, nodes: Sequence[fx.Node], values: Mapping[fx.Node, Tensor | None]) -> dict[fx.Node, fx.Node]:
        """Copy sampled nodes for a single sample; return the copies by node.

        Args:
            nodes: The nodes.
            values: The constants that depend on the sample.
        """
        new: dict[fx.Node, fx.Node] = {}

        def replaced(node: fx.Node) -> fx.Node:
            if node not in new:
                if node in values:
                    value = values[node]
                    new[node] = self.graph.node_copy(node, replaced) if value is None else self.tensor(value)
                else:
                    new[node] = self.new.get(node) or self.graph.node_copy(node, replaced)
            return new[node]

        for node in nodes:
            replaced(node)
        return new

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Any = None) -> fx.Node:
        """Write a call of a function."""
        return self.graph.call_function(function, args, kwargs or {})

    def tensor(self, value: Tensor) -> fx.Node:
        """Write a constant tensor, which becomes a buffer of the module."""
        if id(value) not in self._names:
            self._names[id(value)] = f"tensor_{len(self._names)}", value
            # Without the derivatives and the memory of the network.
            self._root.register_buffer(f"tensor_{len(self._names) - 1}", value.detach().clone())
        return self.graph.get_attr(self._names[id(value)][0])

    def finished(self, output: fx.Node | list[fx.Node]) -> fx.GraphModule:
        """Return the module of the graph."""
        self.graph.output(output)
        self.graph.eliminate_dead_code()
        return fx.GraphModule(self._root, self.graph)
