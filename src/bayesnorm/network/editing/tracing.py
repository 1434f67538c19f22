"""Trace a network with torch.fx down to the layers that have units."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ...errors import NetworkError
from .units import Units
from .walking import Walk


def trace_units(network: nn.Module) -> Units:
    """Return a network's units; refuse a network that cannot be traced, has nothing to prune, or ties weights.

    Args:
        network: The network; it is run on no data and not modified.
    """
    tracer = _Tracer()
    try:
        graph = tracer.trace(network)
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise NetworkError(
            f"model: {type(network).__name__} cannot be traced by torch.fx ({first}). Remove decisions that depend on "
            "the data from its forward."
        ) from error
    modules = dict(network.named_modules())
    walk = Walk(network, modules, _uses(graph, modules))
    for node in graph.nodes:
        walk.visit(node)
    units = walk.units()
    if not units.read:
        raise NetworkError(
            "model: it has no linear or convolutional layer that can be pruned. Pass a network with such layers."
        )
    _require_untied(network)
    return units


def _uses(graph: fx.Graph, modules: dict[str, nn.Module]) -> Counter[nn.Module]:
    """Count how often each module runs, including inside modules that are not traced, or has its tensors read."""
    uses: Counter[nn.Module] = Counter()
    for node in graph.nodes:
        if node.op == "call_module":
            uses.update(modules[node.target].modules())
        elif node.op == "get_attr" and (owner := modules.get(node.target.rpartition(".")[0])) is not None:
            uses[owner] += 1
    return uses


def _require_untied(network: nn.Module) -> None:
    """Refuse weights that several layers share: a part that one layer does not need may be needed by another."""
    owners: dict[int, str] = {}
    for name, module in network.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is not None and owners.setdefault(id(parameter), name) != name:
                raise NetworkError(
                    f"model: {owners[id(parameter)]!r} and {name!r} share their {key}, but their units differ. Pass a "
                    "network without tied weights."
                )


class _Tracer(fx.Tracer):
    """Trace down to layers; subclasses of layers with units, and modules that cannot be traced, are leaves."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, nn.Linear | _ConvNd | _BatchNorm) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        before, stack = len(self.graph.nodes), self.module_stack.copy()
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            for node in reversed(list(self.graph.nodes)[before:]):
                self.graph.erase_node(node)
            self.module_stack = stack
            return self.create_proxy("call_module", self.path_of_module(m), args, kwargs)
