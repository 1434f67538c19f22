"""Make networks with more parts: with dropout, or with outputs for the noise of the targets.

`add_dropout` and `with_noise_head` change a copy of a network; `joined_outputs` joins the two heads of a network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from ...arguments import as_whole, require_number, require_whole
from ...errors import NetworkError
from ..calling import output_entries
from ..copying import unwrap

Where = str | Sequence[str] | Callable[[str, nn.Module], bool]
"""`"linear"`, `"conv"`, `"weights"` (both), names of modules, or a predicate `(name, module) -> bool`."""

Network = TypeVar("Network", bound=nn.Module)

_NAME = "input_dropout"
_KEYWORDS: dict[str, tuple[type[nn.Module], ...]] = {
    "linear": (nn.Linear,),
    "conv": (_ConvNd,),
    "weights": (nn.Linear, _ConvNd),
}


def add_dropout(
    model: Network, p: float, where: Where = "linear", *, input: bool = False, channels: bool = False
) -> Network:
    """Return a copy of a network with dropout in front of its weight layers, as in Gal and Ghahramani (2016).

    Each chosen layer gets a child module `input_dropout`, which its input passes first. The copy has its own weights,
    equal to the original's. The keys of `state_dict` are the same, so saved weights of one load into the other.

    A network that was trained without dropout is rarely good with it: train the copy, or keep p small.

    Args:
        model: The network; it is not modified.
        p: The dropout rate, which is the probability that a unit is dropped.
        where: `"linear"` (in front of every linear layer), `"conv"` (every convolution), `"weights"` (both), names of
            modules, or a predicate `(name, module) -> bool`. The first three skip the network's first weight layer,
            because its input is the data.
        input: Whether to drop entries of the network's input too.
        channels: Whether to drop whole channels in front of convolutions, instead of single entries.
    """
    p = require_number("p", p, above=0, below=1, requirement="a rate between 0 and 1", error=NetworkError)
    network: Any = copy.deepcopy(unwrap(model))
    takers = {id(taker): taker for taker in map(_taker, _chosen(network, where, input))}
    for taker in takers.values():
        if hasattr(taker, _NAME):
            raise NetworkError(
                f"model: {type(taker).__name__} already has a module {_NAME!r}. Pass the network without it."
            )
        convolution = isinstance(taker, _ConvNd)
        kinds = {1: nn.Dropout1d, 2: nn.Dropout2d, 3: nn.Dropout3d}
        kind = kinds[len(taker.kernel_size)] if channels and convolution else nn.Dropout  # type: ignore[arg-type]
        taker.add_module(_NAME, kind(p).train(taker.training))
        taker.register_forward_pre_hook(_through_dropout, with_kwargs=True)
    return network


def _chosen(network: nn.Module, where: Any, input: bool) -> list[nn.Module]:
    """Return the modules to put dropout in front of."""
    modules = dict(network.named_modules())
    first = [network] if input else []
    if isinstance(where, str) and where in _KEYWORDS:
        # Attention uses the weights of its linear layers and never calls them.
        inside = {id(m) for a in modules.values() if isinstance(a, nn.MultiheadAttention) for _, m in a.named_modules()}
        layers = [m for m in modules.values() if isinstance(m, _KEYWORDS[where]) and id(m) not in inside]
        begin = next((m for m in modules.values() if any(p.dim() > 1 for p in m.parameters(recurse=False))), None)
        chosen = [layer for layer in layers if layer is not begin]
        if not chosen and not first:
            raise NetworkError(
                f"where={where!r}, but the network has no such layer"
                + (" except the first, whose input is the data. Use input=True." if layers else ".")
            )
        return first + chosen
    if callable(where):
        chosen = [module for name, module in modules.items() if where(name, module)]
        if not chosen and not first:
            raise NetworkError(f"where: the predicate chose none of the {len(modules)} modules. Choose at least one.")
        return first + chosen
    if not isinstance(where, str | Sequence):
        raise NetworkError(
            f'where must be "linear", "conv", "weights", names of modules or a predicate, got {where!r}.'
        )
    names = (where,) if isinstance(where, str) else tuple(where)
    for name in names:
        if name not in modules:
            existing = ", ".join(map(repr, [name for name in modules if name][:12]))
            raise NetworkError(
                f'where: the network has no module {name!r}. Use "linear", "conv", "weights" or names of modules: '
                f"{existing}."
            )
    if not names and not first:
        raise NetworkError("where is an empty list. Name the modules that should get dropout.")
    return first + [modules[name] for name in names]


def _taker(module: nn.Module) -> nn.Module:
    """Return the module that gets the dropout as a child: a module itself, or the first module of a Sequential."""
    while isinstance(module, nn.Sequential) and len(module):
        module = module[0]
    return module


def _through_dropout(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Pass a module's first input through its dropout; a hook."""
    dropout: Any = getattr(module, _NAME)
    if args:
        return (dropout(args[0]), *args[1:]), kwargs
    name, h = next(iter(kwargs.items()))
    return args, {**kwargs, name: dropout(h)}


def with_noise_head(
    model: Network, layer: str | None = None, *, log_variance: float = 0.0, noises: int | None = None
) -> Network:
    """Return a copy of a network whose last layer also predicts the noise of its outputs.

    Use it with `HeteroscedasticGaussian`, `HeteroscedasticLaplace` and `LogitNoise`.

    The original outputs come first and are unchanged. The new outputs start with the same value for every input.
    Training can continue from there.

    Args:
        model: The network; it is not modified.
        layer: The name of the linear or convolutional layer that computes the outputs; None takes the last module with
            weights, in the order in which modules were created. Everything after it must pass all outputs on: no
            softmax.
        log_variance: Initial value of the new outputs: the logarithm of the targets' noise variance (for
            `HeteroscedasticLaplace`, of its scale).
        noises: Number of outputs to add; None doubles the outputs. Use 1 with `LogitNoise(per_class=False)`.
    """
    log_variance = require_number("log_variance", log_variance, error=NetworkError)
    added = None if noises is None else require_whole("noises", noises, error=NetworkError)
    network: Any = copy.deepcopy(unwrap(model))
    head: Any = _head(network, layer)
    convolution = isinstance(head, _ConvNd)
    outputs = head.out_channels if convolution else head.out_features
    added = outputs if added is None else added
    axis = 1 if isinstance(head, _ConvTransposeNd) else 0
    with torch.no_grad():
        weight = head.weight
        zeros = weight.new_zeros([added if i == axis else size for i, size in enumerate(weight.shape)])
        head.weight = nn.Parameter(torch.cat([weight, zeros], dim=axis), requires_grad=weight.requires_grad)
        if head.bias is not None or log_variance:
            bias = weight.new_zeros(outputs) if head.bias is None else head.bias
            grad = weight.requires_grad if head.bias is None else bias.requires_grad
            start = bias.new_full((added,), log_variance)
            head.bias = nn.Parameter(torch.cat([bias, start]), requires_grad=grad)
    setattr(head, "out_channels" if convolution else "out_features", outputs + added)
    return network


def _head(network: nn.Module, layer: str | None) -> nn.Module:
    """Return the layer that computes the outputs; refuse one that cannot be widened."""
    modules = dict(network.named_modules())
    heads = [name for name, module in modules.items() if isinstance(module, nn.Linear | _ConvNd)]
    shown = ", ".join(map(repr, heads[-8:])) or "none"
    if layer is None:
        weighted = [name for name, module in modules.items() if any(True for _ in module.parameters(recurse=False))]
        layer = weighted[-1] if weighted else ""
        attention = any(layer.startswith(f"{n}.") for n, m in modules.items() if isinstance(m, nn.MultiheadAttention))
        if layer not in heads or attention:
            kind = type(modules[layer]).__name__
            raise NetworkError(
                f"layer=None takes the last module with weights, but {layer!r} ({kind}) is not a linear or "
                f"convolutional layer. Name the layer that computes the outputs, one of {shown}."
            )
    if layer not in heads:
        raise NetworkError(
            f"layer={layer!r} is not a linear or convolutional layer of the network. Use one of {shown}."
        )
    head: Any = modules[layer]
    if nn.parameter.is_lazy(head.weight):
        raise NetworkError(f"layer: {layer!r} is not initialised yet. Run the network once on real data first.")
    if getattr(head, "groups", 1) != 1 or "weight" not in head._parameters:
        why = "is a grouped convolution" if "weight" in head._parameters else "computes its weight from other tensors"
        raise NetworkError(f"layer: {layer!r} {why}, which cannot be widened. Add a plain layer after it.")
    return head


def joined_outputs(model: nn.Module, entries: Sequence[str | int], *, axis: int = 1) -> nn.Module:
    """Return a network whose output consists of entries of the output of `model`, side by side.

    Use it for a network with two heads, `{"mean": ..., "log_var": ...}` or `(mean, log_var)`, and
    `HeteroscedasticGaussian`, or for one head per task and `MultiTask`. It holds `model` itself, not a copy.

    Args:
        model: The network, which returns a dict or a tuple of tensors (batch, ...).
        entries: Keys of the dict or positions in the tuple, in the order that the likelihood expects.
        axis: The axis along which they are joined; an entry of shape (batch,) is one column.
    """
    if isinstance(entries, str) or not isinstance(entries, Sequence) or not entries:
        raise NetworkError(f'entries must be a list such as ["mean", "log_var"] or [0, 1], got {entries!r}.')
    position = as_whole(axis)
    if not position:  # axis 0 holds the examples
        raise NetworkError(f"axis must be 1, or -1 for the last axis, got {axis!r}.")
    return JoinedOutputs(unwrap(model), tuple(entries), position)


class JoinedOutputs(nn.Module):
    """A network whose output consists of entries of another network's output; made by `joined_outputs`."""

    def __init__(self, model: nn.Module, entries: tuple[str | int, ...], axis: int) -> None:
        super().__init__()
        self.model, self.entries, self.axis = model, entries, axis
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        result = self.model(*args, **kwargs)
        entries = output_entries(result)
        parts = []
        for entry in self.entries:
            part = entries.get(entry)
            if not isinstance(part, Tensor):
                raise NetworkError(
                    f"entries: {entry!r} is not a tensor in the output of the network, which returns "
                    f"{type(result).__name__} with entries {', '.join(map(repr, entries)) or 'unknown'}. Use tensors "
                    "among these."
                )
            parts.append(part if part.dim() > 1 else part.unsqueeze(1))
        return torch.cat(parts, dim=self.axis)
