"""Add dropout to a network that was built without it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

from ...arguments import require_number
from ...errors import NetworkError
from ..copying import unwrap

Where = str | Sequence[str] | Callable[[str, nn.Module], bool]
"""`"linear"`, `"conv"`, `"weights"` (both), names of modules, or a predicate `(name, module) -> bool`."""

_NAME = "input_dropout"
_KEYWORDS: dict[str, tuple[type[nn.Module], ...]] = {
    "linear": (nn.Linear,),
    "conv": (_ConvNd,),
    "weights": (nn.Linear, _ConvNd),
}


def add_dropout(
    model: nn.Module, p: float, where: Where = "linear", *, input: bool = False, channels: bool = False
) -> nn.Module:
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
    network = copy.deepcopy(unwrap(model))
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
        begin = next((m for m in modules.values() if _has_weights(m)), None)
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


def _has_weights(module: nn.Module) -> bool:
    """Return whether a module itself has a weight with at least two axes."""
    return any(parameter.dim() > 1 for parameter in module.parameters(recurse=False))


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
