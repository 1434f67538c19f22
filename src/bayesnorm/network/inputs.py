"""Find the inputs of a network in what people have: pairs with targets, several inputs, dicts, dataclasses, batches.

The signature of the network's forward decides what is an input. `Inputs` stands for several tensors wherever one tensor
is expected: it has as many entries as there are examples, and is indexed, split and moved like one tensor.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError, warn
from .calling import as_input, as_tensor
from .several import Inputs, run_forward as run_forward

# Names of targets in dicts, which an optional argument of a forward does not turn into inputs.
TARGETS = ("y", "label", "labels", "target", "targets")

# Arguments of networks that process all nodes of a graph in one forward pass.
GRAPHS = ("edge_index", "edges", "edge", "adj", "adj_t", "adjacency", "graph")


class InputForm:
    """The inputs that a network takes, by the signature of its forward.

    Args:
        model: The network; None for one that takes one tensor.
        forward_kwargs: Further arguments of every forward pass, which are no inputs.
        run: Runs the network on inputs, to find out whether it takes whole numbers.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        forward_kwargs: Mapping[str, Any] | None = None,
        run: Callable[[Tensor], object] | None = None,
    ) -> None:
        self.forward_kwargs, self._run = dict(forward_kwargs or {}), run
        self._lowered: dict[tuple[torch.dtype, ...], tuple[torch.dtype, ...]] = {}  # whole dtypes that become floats
        self._warned = False
        parameters = list(_parameters(model))
        free = [parameter for parameter in parameters if parameter.name not in self.forward_kwargs]
        kinds = inspect.Parameter
        self._positional = [p for p in free if p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
        self._keywords = {p.name: p for p in free if p.kind in (kinds.KEYWORD_ONLY, kinds.POSITIONAL_OR_KEYWORD)}
        self._any_number = any(p.kind is kinds.VAR_POSITIONAL for p in free)
        self._any_keyword = any(p.kind is kinds.VAR_KEYWORD for p in free)
        self.required = max(1, sum(p.default is p.empty for p in self._positional))
        self.text = f"forward({', '.join(p.name if p.default is p.empty else f'{p.name}=...' for p in free)})"

    @property
    def takes_graph(self) -> bool:
        """Whether an argument of the forward has the name of a graph's edges."""
        return any(name in GRAPHS for name in (*self._keywords, *self.forward_kwargs))

    def split(self, entry: Any, name: str) -> tuple[Tensor, Any]:
        """Return the inputs and the targets (None if there are none) in a pair, a dict, a batch or an array.

        Args:
            entry: The data of some examples.
            name: The name of the caller's argument, for messages.
        """
        inputs, targets = self._split(entry, name)
        if isinstance(inputs, Inputs):
            inputs = inputs.map(lambda value: as_tensor(value, name))
            lengths = [len(tensor) for tensor in inputs.tensors]
            if len(set(lengths)) > 1:
                raise InputError(
                    f"{name}: the {len(lengths)} inputs of {self.text} have {' and '.join(map(str, lengths))} rows. "
                    f"Pass one row per example in each.{self.graph_advice()}"
                )
        else:
            inputs = as_tensor(inputs, name)
        length = None
        if hasattr(targets, "shape"):
            length = targets.shape[0] if len(targets.shape) else 0
        elif isinstance(targets, Sequence) and not is_data(targets):
            length = len(targets)
        if targets is not None and length not in (None, len(inputs)):
            raise InputError(
                f"{name}: x has {len(inputs)} rows, but y has {length or 'none'}. Pass as many targets as inputs."
                f"{self.graph_advice()}"
            )
        return cast(Tensor, inputs), targets

    def lists_batches(self, data: Any) -> bool:
        """Return whether data are a list or tuple of several batches of one layout, rather than one pair or batch."""
        if not isinstance(data, tuple | list) or len(data) < 2 or hasattr(data, "_fields"):
            return False
        if not all(map(is_data, data)) or len(set(map(_layout, data))) > 1:
            return False
        if is_array(data[0]):  # more than a batch has inputs and targets
            return isinstance(data, list) and not self._any_number and len(data) > max(2, len(self._positional) + 1)
        inputs_and_targets = isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], tuple | list)
        return not (inputs_and_targets and len(data[0]) == self.required)

    def argument_names(self, x: Any) -> list[str]:
        """Return the names of the forward's arguments that inputs are passed to, in order."""
        positions = len(x.args) if isinstance(x, Inputs) else 1
        free = [parameter.name for parameter in self._positional[:positions]]
        free += [f"input_{place}" for place in range(len(free), positions)]
        return [*free, *(x.kwargs if isinstance(x, Inputs) else ())]

    def graph_advice(self) -> str:
        """Return what to do with a network that processes a whole graph, or "" for other networks."""
        if not self.takes_graph:
            return ""
        return (
            " A network that runs all nodes of a graph in one forward pass has no batches of nodes, so there are no "
            "batch statistics to sample. Train and predict on batches of graphs or subgraphs, or use bn.ensemble or "
            "MCDropout, with the edges in forward_kwargs=."
        )

    def placed(self, x: Any, name: str, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return inputs on the network's device and in its dtype. Whole numbers keep theirs if the network takes them.

        Args:
            x: A tensor, or `Inputs`.
            name: The name of the caller's argument, for messages.
            device: The network's device.
            dtype: The network's dtype.
        """
        if isinstance(x, Tensor):
            x = as_input(x, name, device, dtype)
            if x.is_floating_point():
                return x
        else:
            x = x.map(lambda tensor: as_input(tensor, name, device, dtype))
        return self._with_whole_numbers(cast(Tensor, x), dtype)

    def _with_whole_numbers(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Return inputs with whole numbers in the network's dtype, unless it takes them, as embeddings do."""
        tensors = x.tensors if isinstance(x, Inputs) else [x]
        dtypes = tuple(tensor.dtype for tensor in tensors)
        whole = tuple(dict.fromkeys(kind for kind in dtypes if not kind.is_floating_point))
        if whole and dtypes not in self._lowered:
            if self._run is None:
                return x
            choices = dict.fromkeys([(), tuple(kind for kind in whole if kind is torch.uint8), whole])
            for few, lowered in product((x[:2], x), choices):  # all examples for a network of a whole graph
                try:
                    self._run(_lowered(few, lowered, dtype))
                except Exception:  # the network's own error, in whatever it calls
                    continue
                self._lowered[dtypes] = lowered
                break
        return _lowered(x, self._lowered.get(dtypes, ()), dtype)

    def _split(self, entry: Any, name: str) -> tuple[Any, Any]:
        if isinstance(entry, Inputs | Tensor | np.ndarray) or hasattr(entry, "to_numpy"):
            return entry, None
        fields = fields_of(entry, self._keywords)
        if fields is not None:
            return self._by_name(fields, name)
        if not isinstance(entry, tuple | list) or not any(map(is_data, entry)):
            return entry, None  # numbers, or something that is no data
        return self._by_position(list(entry), name)

    def _by_name(self, fields: dict[str, Any], name: str) -> tuple[Any, Any]:
        """Return inputs and targets by the names of the forward's arguments."""

        def is_input(key: str) -> bool:
            parameter = self._keywords.get(key)
            if parameter is None:
                return self._any_keyword and key not in TARGETS
            return parameter.default is parameter.empty or key not in TARGETS

        chosen = {key: value for key, value in fields.items() if is_input(key)}
        if not chosen and self.required == 1:
            chosen = {key: value for key, value in fields.items() if key not in TARGETS}
            if len(chosen) == 1:
                return next(iter(chosen.values())), _targets(fields, chosen)
        missing = [p.name for p in self._positional if p.default is p.empty and p.name not in chosen]
        if missing or not chosen:
            raise InputError(
                f"{name}: it has entries {', '.join(map(repr, fields)) or 'none'}, but {self.text} needs "
                f"{missing[0] if missing else 'an input'!r}. Name the entries like the arguments of forward."
            )
        targets = _targets(fields, chosen)
        if len(chosen) == 1 and self._positional and next(iter(chosen)) == self._positional[0].name:
            return next(iter(chosen.values())), targets
        return Inputs((), chosen), targets

    def _by_position(self, entry: list[Any], name: str) -> tuple[Any, Any]:
        """Return inputs and targets of a batch or pair, by the number of arguments that the forward needs."""
        if len(entry) == 1:
            return self._split(entry[0], name)
        if not is_array(entry[0]):
            inputs = entry[0]
            if type(inputs) in (tuple, list):  # all of them are inputs
                if len(inputs) > max(1, len(self._positional)) and not self._any_number:
                    raise InputError(
                        f"{name}: its first entry has {len(inputs)} arrays, but {self.text} takes "
                        f"{len(self._positional)}. Pass (x, y), or a list of batches (x, y) of one shape and dtype."
                    )
                inputs = Inputs(tuple(inputs), {}) if len(inputs) > 1 else inputs[0]
            return self._split(inputs, name)[0], entry[1] if len(entry) == 2 else tuple(entry[1:])
        most = len(entry) if self._any_number else max(self.required, len(self._positional))
        if len(entry) < self.required:
            raise InputError(
                f"{name} has {len(entry)} entries, but {self.text} needs {self.required} inputs. Pass "
                f"({', '.join(p.name for p in self._positional[: self.required])}), y)."
            )
        count = len(entry) - 1 if self.required < len(entry) - 1 <= most else self.required
        optional = self._positional[count : count + 1]
        if len(entry) == count + 1 and optional and optional[0].default is None:
            self._say(
                f"{name}: its last entry is taken for targets, because {self.text} needs {count} of {len(entry)} "
                f"entries. For an input {optional[0].name!r}, pass a dict, or ((x, {optional[0].name}), y)."
            )
        rest = entry[count:]
        targets = None if not rest else rest[0] if len(rest) == 1 else tuple(rest)
        return entry[0] if count == 1 else Inputs(tuple(entry[:count]), {}), targets

    def _say(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            warn(message)


def is_array(value: Any) -> bool:
    """Return whether a value is a tensor, an array or a data frame."""
    return isinstance(value, Tensor | np.ndarray) or hasattr(value, "to_numpy")


def is_data(value: Any) -> bool:
    """Return whether a value is an array, or contains some by name or position."""
    if isinstance(value, tuple | list):
        return any(map(is_array, value)) or (bool(value) and is_data(value[0]))
    return is_array(value) or isinstance(value, Mapping | Inputs) or is_instance_of_dataclass(value)


def _layout(entry: Any) -> Any:
    """Return what batches of one data set have in common: names, dtypes, and the shapes of one example."""
    if is_array(entry):
        return getattr(entry, "dtype", None), tuple(entry.shape[1:])
    fields = fields_of(entry, {})
    if fields is not None:
        return frozenset((name, _layout(value)) for name, value in fields.items())
    return tuple(map(_layout, entry)) if isinstance(entry, tuple | list) and is_data(entry) else type(entry)


def is_instance_of_dataclass(value: Any) -> bool:
    """Return whether a value is an instance of a dataclass, not the class."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def fields_of(entry: Any, names: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return entries of a dict, a dataclass, or a named tuple with one of the names; None for anything else."""
    if isinstance(entry, Mapping):
        return dict(entry)
    if is_instance_of_dataclass(entry):
        return {field.name: getattr(entry, field.name) for field in dataclasses.fields(entry)}
    keys: Sequence[str] = getattr(entry, "_fields", ()) if isinstance(entry, tuple) else ()
    return dict(zip(keys, entry, strict=True)) if any(key in names for key in keys) else None


def _targets(fields: dict[str, Any], chosen: dict[str, Any]) -> Any:
    """Return what is left over of named entries: the one called a target, a single one, or all by name."""
    rest = {key: value for key, value in fields.items() if key not in chosen and value is not None}
    named = [key for key in TARGETS if key in rest]
    if named or len(rest) == 1:
        return rest[named[0] if named else next(iter(rest))]
    return rest or None


def _lowered(x: Tensor, kinds: tuple[torch.dtype, ...], dtype: torch.dtype) -> Tensor:
    """Return inputs with tensors of some dtypes in the network's dtype."""
    if isinstance(x, Inputs):
        return cast(Tensor, x.map(lambda tensor: tensor.to(dtype) if tensor.dtype in kinds else tensor))
    return x.to(dtype) if x.dtype in kinds else x


def _parameters(model: nn.Module | None) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a network's forward; one for networks whose signature cannot be read."""
    try:
        if model is not None:
            yield from inspect.signature(model.forward).parameters.values()
            return
    except (TypeError, ValueError):
        pass
    yield inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)
