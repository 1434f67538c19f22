"""Put dropout into a network that was built without."""

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

    A chosen layer gets a child `input_dropout` that its input goes through first. The copy has weights of its own, the
    same as the original's, and `state_dict` has the same keys: what was saved from the one loads into the other.

    A network that was trained without dropout is seldom a good one with it: train the copy, or keep p small.

    Args:
        model: The network; it is not modified.
        p: The rate, the probability of a unit to be dropped.
        where: `"linear"` (in front of every linear layer), `"conv"` (every convolution), `"weights"` (both), names of
            modules, or a predicate `(name, module) -> bool`. The first three leave out the network's first weight
            layer, whose input is the data.
        input: Whether to drop out entries of the network's input too.
        channels: Whether whole channels are dropped in front of convolutions, instead of single entries.
    """
    p = require_number("p", p, above=0, below=1, requirement="a rate between 0 and 1", error=NetworkError)
    network = copy.deepcopy(unwrap(model))
    takers = {id(taker): taker for taker in map(_taker, _chosen(network, where, input))}
    for taker in takers.values():
        if hasattr(taker, _NAME):
            raise NetworkError(
                f"model: {type(taker).__name__} has an {_NAME!r} already; start from the network without."
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
        # Attention takes the weights of its own linear layers and never calls them.
        inside = {id(m) for a in modules.values() if isinstance(a, nn.MultiheadAttention) for _, m in a.named_modules()}
        layers = [m for m in modules.values() if isinstance(m, _KEYWORDS[where]) and id(m) not in inside]
        begin = next((m for m in modules.values() if _has_weights(m)), None)
        chosen = [layer for layer in layers if layer is not begin]
        if not chosen and not first:
            raise NetworkError(
                f"where: {where!r} was given, and the network has no such layer"
                + (" but the first, which takes the data; input=True would work." if layers else ".")
            )
        return first + chosen
    if callable(where):
        chosen = [module for name, module in modules.items() if where(name, module)]
        if not chosen and not first:
            raise NetworkError(f"where: the predicate chose none of {len(modules)} modules.")
        return first + chosen
    if not isinstance(where, str | Sequence):
        raise NetworkError(f'where: {where!r} was given; "linear", "conv", "weights", names or a predicate would work.')
    names = (where,) if isinstance(where, str) else tuple(where)
    for name in names:
        if name not in modules:
            known = ", ".join(map(repr, [name for name in modules if name][:12]))
            raise NetworkError(
                f'where: {name!r} was given; "linear", "conv", "weights" or modules of the network would work: {known}.'
            )
    if not names and not first:
        raise NetworkError("where: an empty list was given; name the modules to put dropout in front of.")
    return first + [modules[name] for name in names]


def _has_weights(module: nn.Module) -> bool:
    """Tell whether a module has a weight of its own that is a matrix or more."""
    return any(parameter.dim() > 1 for parameter in module.parameters(recurse=False))


def _taker(module: nn.Module) -> nn.Module:
    """Return the module that takes the dropout as a child: a Sequential would run it last, so its first module does."""
    while isinstance(module, nn.Sequential) and len(module):
        module = module[0]
    return module


def _through_dropout(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Send a module's first input through its dropout; a hook."""
    dropout: Any = getattr(module, _NAME)
    if args:
        return (dropout(args[0]), *args[1:]), kwargs
    name, h = next(iter(kwargs.items()))
    return args, {**kwargs, name: dropout(h)}
