"""Write sampled nodes with samples folded into the batch axis, (samples * batch, ...), samples first."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ...errors import NetworkError
from ..running.affine import scale_and_shift
from .tracing import TracedNetwork, is_symbolic, is_tensor
from .writing import GraphWriter

_OPS: Any = torch.ops.aten

_BATCHNORM = _OPS._native_batch_norm_legit_no_training.default


class NotFoldableError(NetworkError):
    """Raised if an operation has no folded form."""


class FoldedWriter:
    """Writes the nodes of one group of samples.

    Args:
        writer: Writes the graph; the plain nodes are in it.
        traced: The network.
        sampled: The nodes that depend on inputs and samples.
        varying: Constants that depend on samples, (samples, *shape).
        samples: The number of samples.
    """

    def __init__(
        self,
        writer: GraphWriter,
        traced: TracedNetwork,
        sampled: set[fx.Node],
        varying: Mapping[fx.Node, Tensor | None],
        samples: int,
    ) -> None:
        self._writer, self._traced, self._samples = writer, traced, samples
        self._sampled, self._varying = sampled, varying
        self._new: dict[fx.Node, Any] = {}  # folded nodes, and repeated plain ones
        self._by_samples: dict[fx.Node, fx.Node] = {}  # folded nodes as they were, (samples, batch, ...)
        self._scaled: dict[fx.Node, fx.Node] = {}  # sizes for all samples

    def write(self, nodes: Sequence[fx.Node]) -> fx.Node:
        """Write the nodes; return the outputs, (samples, batch, *out)."""
        for node in nodes:
            self._new[node] = self._node(node)
        return self._unfolded(self._new[self._traced.output])

    def _node(self, node: fx.Node) -> Any:
        args: Any = node.args
        if node.target is operator.getitem and isinstance(self._new.get(args[0]), tuple):
            return self._new[args[0]][args[1]]
        parents = [parent for parent in node.all_input_nodes if parent in self._varying]
        if node.target is _BATCHNORM and parents:
            return (self._affine_map(node),)
        if node.target is _OPS.linear.default and args[1] in self._varying:
            return self._linear(node)
        written = self._elementwise(node)
        if written is not None:
            return written
        if parents:
            raise NotFoldableError(f"{node.target} has no form for several samples")
        return self._written(node, self._folded)

    def _affine_map(self, node: fx.Node) -> fx.Node:
        """Write a sampled batch norm, as one scale and one shift per sample and channel."""
        args: Any = node.args
        h, weight, bias, mean, var, _, eps = args
        if mean.target in self._writer.free:
            return self._free_affine_map(node)
        mean, var = self._per_sample(mean).double(), self._per_sample(var).double()
        weight, bias = (None if part is None else self._per_sample(part).double() for part in (weight, bias))
        dtype = self._value(h).dtype
        maps = [part.to(dtype).contiguous() for part in scale_and_shift(mean, var, eps, weight, bias)]
        pixels = [1] * (self._value(h).dim() - 2)
        scale, shift = (self._writer.tensor(part.reshape(len(part), 1, -1, *pixels)) for part in maps)
        scaled = self._writer.call(torch.mul, (self._by_sample(h), scale))
        return self._together(self._writer.call(torch.add, (scaled, shift)))

    def _free_affine_map(self, node: fx.Node) -> fx.Node:
        """Write a sampled batch norm whose statistics, (samples, channels), are inputs of the graph."""
        args: Any = node.args
        h, weight, bias, mean, var, _, eps = args
        if weight in self._varying or bias in self._varying:
            raise NotFoldableError("weights and statistics of one batch norm are sampled")
        statistics = (self._writer.free[str(part.target)] for part in (mean, var))
        parts = (None if part is None else self._writer.new[part] for part in (weight, bias))
        pixels = self._value(h).dim() - 2
        maps = self._writer.call(_double_scale_and_shift, (*statistics, eps, *parts, pixels))
        scale, shift = (self._writer.call(operator.getitem, (maps, place)) for place in range(2))
        scaled = self._writer.call(torch.mul, (self._by_sample(h), scale))
        return self._together(self._writer.call(torch.add, (scaled, shift)))

    def _linear(self, node: fx.Node) -> fx.Node:
        """Write a linear layer with one weight matrix per sample."""
        args: Any = (*node.args, None)
        h, weight, bias = args[:3]
        between = [1] * (self._value(h).dim() - 2)
        matrices = self._per_sample(weight).mT
        matrices = matrices.reshape(len(matrices), *between, *matrices.shape[1:]).contiguous()
        result = self._writer.call(torch.matmul, (self._by_sample(h), self._writer.tensor(matrices)))
        if bias is not None:
            offsets = self._per_sample(bias)
            offsets = offsets.reshape(len(offsets), 1, *between, -1)
            result = self._writer.call(torch.add, (result, self._writer.tensor(offsets)))
        return self._together(result)

    def _elementwise(self, node: fx.Node) -> fx.Node | None:
        """Write an element-by-element operation of tensors of which some do not have all samples; None if it is none.

        Unsampled activations of the shape of sampled ones are broadcast, not repeated.
        """
        if torch.Tag.pointwise not in getattr(node.target, "tags", ()):
            return None
        tensors = [parent for parent in node.all_input_nodes if is_tensor(parent.meta.get("val"))]
        varying = [parent for parent in tensors if parent in self._varying]
        sampled = [parent for parent in tensors if parent in self._sampled]
        plain = [parent for parent in tensors if parent not in sampled and self._traced.batch_axes(parent)]
        if varying:
            return self._with_constants(node, [*sampled, *plain])
        sizes = self._value(node).shape
        alike = all(self._value(parent).shape == sizes for parent in tensors)
        if not plain or not alike or self._traced.batch_axes(node) != [0]:
            return None

        def operand(part: fx.Node) -> Any:
            if part not in tensors:
                return self._folded(part)
            if part in self._sampled:
                return self._writer.call(torch.reshape, (self._unfolded(self._new[part]), (self._samples, -1)))
            return self._writer.call(torch.reshape, (self._writer.new[part], (-1,)))

        result = self._written(node, operand)
        return self._writer.call(torch.reshape, (result, (-1, *map(int, sizes[1:]))))

    def _with_constants(self, node: fx.Node, activations: list[fx.Node]) -> fx.Node:
        """Write an element-by-element operation of activations and sampled constants, such as dropout masks."""
        rank = self._value(node).dim()
        if any(self._traced.batch_axes(part) != [0] or self._value(part).dim() != rank for part in activations):
            raise NotFoldableError(f"{node.target} combines sampled constants with another axis of the batch")

        def operand(part: fx.Node) -> Any:
            if part in self._varying:
                value = self._per_sample(part)
                missing = [1] * (rank + 1 - value.dim())
                if not missing and value.shape[1] != 1:
                    raise NotFoldableError(f"{node.target} has a sampled constant along the batch")
                return self._writer.tensor(value.reshape(len(value), *missing, *value.shape[1:]))
            return self._by_sample(part) if part in activations else self._folded(part)

        return self._together(self._written(node, operand))

    def _written(self, node: fx.Node, operand: Callable[[fx.Node], Any]) -> fx.Node:
        args, kwargs = fx.map_arg((node.args, node.kwargs), operand)
        return self._writer.graph.create_node("call_function", node.target, args, kwargs)

    def _by_sample(self, node: fx.Node) -> fx.Node:
        """Return a tensor with an axis of samples before that of the batch, or one that broadcasts to this axis."""
        return self._unfolded(self._new[node]) if node in self._sampled else self._writer.new[node]

    def _unfolded(self, new: fx.Node) -> fx.Node:
        if new not in self._by_samples:
            self._by_samples[new] = self._writer.call(torch.unflatten, (new, 0, (self._samples, -1)))
        return self._by_samples[new]

    def _together(self, new: fx.Node) -> fx.Node:
        folded = self._writer.call(torch.flatten, (new, 0, 1))
        self._by_samples[folded] = new
        return folded

    def _folded(self, node: fx.Node) -> Any:
        """Return the folded form of a node: sampled, repeated along the batch, or a size for all samples."""
        if node in self._new:
            return self._new[node]
        value: Any = node.meta.get("val")
        if node in self._sampled:
            raise NotFoldableError(f"{node} is needed before it is computed")
        if is_symbolic(value):
            return self._size(node)
        new = self._writer.new[node]
        axes = self._traced.batch_axes(node)
        if axes:
            times = [self._samples if axis in axes[:1] else 1 for axis in range(value.dim())]
            if len(axes) > 1:
                raise NotFoldableError(f"{node} has the batch along several axes")
            self._new[node] = new = self._writer.call(torch.Tensor.repeat, (new, *times))
        return new

    def _size(self, node: fx.Node) -> Any:
        """Return a size that depends on the number of examples, for all samples."""
        if node not in self._scaled:
            if node.target is _OPS.sym_size.int:  # of the first input
                new = self._writer.call(operator.mul, (self._writer.new[node], self._samples))
            else:
                args, kwargs = fx.map_arg((node.args, node.kwargs), self._folded)
                new = self._writer.graph.create_node("call_function", node.target, args, kwargs)
            self._scaled[node] = new
        return self._scaled[node]

    def _per_sample(self, node: Any) -> Tensor:
        """Return a constant for every sample, (samples, *shape)."""
        if node in self._varying:
            value = self._varying[node]
            if value is None:
                raise NotFoldableError(f"{node} is no tensor")
            return value
        if node.op != "get_attr":
            raise NotFoldableError(f"{node} is no constant")
        value = self._traced.tensors[str(node.target)]
        return value.expand(self._samples, *value.shape)

    @staticmethod
    def _value(node: Any) -> Tensor:
        value = node.meta["val"]
        assert isinstance(value, Tensor)
        return value


def _double_scale_and_shift(
    mean: Tensor, var: Tensor, eps: float, weight: Tensor | None, bias: Tensor | None, pixels: int
) -> list[Tensor]:
    """Return the affine map of a batch norm per sample, each (samples, 1, channels, *ones), in double precision."""
    wide = (None if part is None else part.double() for part in (weight, bias))
    maps = scale_and_shift(mean.double(), var.double(), eps, *wide)
    return [part.to(mean.dtype).reshape(len(part), 1, -1, *[1] * pixels) for part in maps]
