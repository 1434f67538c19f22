"""Trace a network into a functional graph with any number of examples, by `torch.export`."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from ...errors import NetworkError
from ..calling import select_output
from ..copying import private_copy
from ..restoring import isolated_torch_randomness
from ..running.executable import Executable
from ..several import Inputs, forward_arguments

# Number of examples of a trace. Traces of one example are specialised to it.
TRACED_ROWS = 3

_OPS: Any = torch.ops.aten


@dataclass(frozen=True)
class TracedNetwork:
    """A network in evaluation mode as a graph of torch operations that change nothing in place.

    Args:
        graph: Placeholders for the inputs, in order; a `get_attr` node for every tensor of the network; one output.
        tensors: The network's tensors by name, which it shares.
    """

    graph: fx.Graph
    tensors: dict[str, Tensor]

    @property
    def inputs(self) -> list[fx.Node]:
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @property
    def output(self) -> fx.Node:
        (node,) = self.graph.find_nodes(op="output")
        return only_output(node)

    def batch_axes(self, node: fx.Node) -> list[int]:
        """Return the axes of a tensor whose size depends on the number of examples."""
        value: Any = node.meta.get("val")
        return [axis for axis, size in enumerate(value.shape) if is_symbolic(size)] if is_tensor(value) else []


class OneOutput(nn.Module):
    """A network whose arguments are tensors in order, and whose output is one tensor.

    Args:
        network: A private copy of the network.
        like: Inputs, whose arrangement into arguments by position and name is used.
        output: The entry to take if the network returns a dict (a key) or a tuple (a position).
    """

    def __init__(self, network: nn.Module, like: Tensor | Inputs, output: str | int | None) -> None:
        super().__init__()
        self.network, self.output = network, output
        self.positions = len(like.args) if isinstance(like, Inputs) else 1
        self.names = list(like.kwargs) if isinstance(like, Inputs) else []

    def forward(self, *inputs: Tensor) -> Tensor:
        named = dict(zip(self.names, inputs[self.positions :], strict=True))
        return select_output(self.network(*inputs[: self.positions], **named), self.output, inputs[0].shape[0])


def trace_network(executable: Executable, x: Any) -> TracedNetwork:
    """Return the graph of the network that an executable runs, in which every tensor keeps its name.

    Args:
        executable: Holds the network.
        x: Inputs as `Executable.input` returns them; their first axis may have any size in the graph.
    """
    network = executable.network
    if network is executable.model:
        network = private_copy(network, executable.forward_kwargs)
    rows = x[torch.arange(TRACED_ROWS, device=x.device) % len(x)]
    args, kwargs = forward_arguments(rows)
    program = exported(
        OneOutput(network, x, executable.output), (*args, *kwargs.values()), type(executable.model), True
    )
    changed = program.graph_signature.buffers_to_mutate.values()
    if changed:
        raise NetworkError(
            f"model: its forward changes {sorted(changed)[0].removeprefix('network.')!r} in evaluation mode, so it "
            "cannot be exported. Export needs a forward that only computes outputs."
        )
    module = program.module()
    graph = module.graph
    tensors: dict[str, Tensor] = {}
    for node in list(reversed(graph.nodes)):
        if node.op == "get_attr":
            name = str(node.target)
            tensors[name.removeprefix("network.")] = attribute(module, name).detach()
            node.target = name.removeprefix("network.")
        elif node.op == "call_module" or _only_asserts(node):  # checks of the sizes of inputs
            graph.erase_node(node)
        elif node.op == "call_function" and node.target is _OPS.dropout.default and not node.args[2]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    _require_deterministic(graph)
    _take_sizes_from_inputs(graph)
    _leave_batch_to_views(graph)
    return TracedNetwork(graph, tensors)


def exported(
    module: nn.Module, inputs: tuple[Tensor, ...], kind: type, functional: bool = False, fixed: tuple[Tensor, ...] = ()
) -> Any:
    """Return a `torch.export` program of a module for any number of examples.

    Args:
        module: Takes the inputs.
        inputs: Several examples each.
        kind: The class of the network, for messages.
        functional: Whether to replace operations in place, which takes longer than the trace.
        fixed: Further arguments, whose sizes do not depend on the number of examples.
    """
    batch = torch.export.Dim("batch", min=1)
    try:
        with (
            torch.no_grad(),
            isolated_torch_randomness(0),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # torch deprecates its own functions
            shapes = (*({0: batch} for _ in inputs), *(None for _ in fixed))
            program = torch.export.export(module, (*inputs, *fixed), dynamic_shapes=(shapes,), strict=False)
            return program.run_decompositions({}) if functional else program
    except Exception as error:  # torch.export fails in many ways
        lines = (str(error).strip() or repr(error)).splitlines()
        raise NetworkError(
            f"model: {kind.__name__} cannot be exported, because torch.export could not trace its forward: {lines[0]} "
            "The forward must not branch on the values of tensors, or convert them to Python numbers, and it must "
            "accept any number of examples."
        ) from error


def attribute(module: nn.Module, name: str) -> Any:
    """Return the attribute of a module or of a module inside it."""
    for part in name.split("."):
        module = getattr(module, part)
    return module


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def is_symbolic(size: Any) -> bool:
    """Return whether a size in a trace depends on the number of examples."""
    return isinstance(size, torch.SymInt) and bool(size.node.expr.free_symbols)


def only_output(node: fx.Node) -> fx.Node:
    """Return the single node that a graph's output node returns."""
    (result,) = list(_nodes(node.args[0]))
    return result


def _nodes(value: Any) -> Iterator[fx.Node]:
    if isinstance(value, fx.Node):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _nodes(part)


def _only_asserts(node: fx.Node) -> bool:
    name = str(node.target)
    return node.op == "call_function" and not node.users and ("assert" in name or "sym_constrain" in name)


def _take_sizes_from_inputs(graph: fx.Graph) -> None:
    """Let all sizes that depend on the number of examples be computed from the first input, not from activations."""
    first = next(node for node in graph.nodes if node.op == "placeholder")
    symbol = first.meta["val"].shape[0].node.expr
    after_inputs = [node for node in graph.nodes if node.op in ("placeholder", "get_attr")][-1]
    with graph.inserting_after(after_inputs):
        rows = graph.call_function(_OPS.sym_size.int, (first, 0))
        rows.meta["val"] = first.meta["val"].shape[0]
    for node in list(graph.nodes):
        if node.target is not _OPS.sym_size.int or node is rows or not is_symbolic(node.meta["val"]):
            continue
        times = node.meta["val"].node.expr / symbol
        if not times.is_Integer:
            continue
        replacement = rows
        if times != 1:
            with graph.inserting_after(node):
                replacement = graph.call_function(operator.mul, (rows, int(times)))
                replacement.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(replacement)
        graph.erase_node(node)


def _leave_batch_to_views(graph: fx.Graph) -> None:
    """Let views infer the single size that depends on the number of examples, so that they hold for several samples."""
    for node in graph.nodes:
        if node.target in (_OPS.view.default, _OPS.reshape.default, _OPS._unsafe_view.default):
            sizes = node.meta["val"].shape
            if sum(map(is_symbolic, sizes)) == 1:
                node.args = (node.args[0], [-1 if is_symbolic(size) else int(size) for size in sizes])


def _require_deterministic(graph: fx.Graph) -> None:
    for node in graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise NetworkError(
                f"model: its forward draws random numbers in evaluation mode ({node.target}), so no file can give the "
                "same predictions. Switch that off in evaluation mode."
            )
