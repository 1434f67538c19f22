"""Find a network's dropout layers and their rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ..arguments import require_number
from ..errors import NetworkError
from .copying import require_finite_weights, unwrap
from .layers import listed, module_kinds

RateChoice = float | Mapping[str, float] | None
"""One rate for all dropout layers, rates by name (others keep their own), or None for the layers' own."""


@dataclass(frozen=True)
class DropoutKind:
    """What torch's dropout layers differ in."""

    channels: bool = False  # whole channels are dropped, not single entries
    alpha: bool = False  # mean and variance are kept, for self-normalising networks
    unbatched: int | None = None  # inputs of so many axes are one row, whose first axis holds the channels


DROPOUT_KINDS: dict[Callable[..., Any], DropoutKind] = {
    nn.Dropout.forward: DropoutKind(),
    nn.Dropout1d.forward: DropoutKind(channels=True, unbatched=2),
    nn.Dropout2d.forward: DropoutKind(channels=True),
    nn.Dropout3d.forward: DropoutKind(channels=True, unbatched=4),
    nn.AlphaDropout.forward: DropoutKind(alpha=True),
    nn.FeatureAlphaDropout.forward: DropoutKind(channels=True, alpha=True),
}


def find_dropout(network: nn.Module) -> dict[str, _DropoutNd]:
    """Return every dropout layer by name, subclasses too unless they have a forward of their own."""
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, _DropoutNd) and type(module).forward in DROPOUT_KINDS and "forward" not in vars(module)
    }


def dropout_rates(model: nn.Module, p: RateChoice = None) -> dict[str, float]:
    """Return the rate of every dropout layer that is to be drawn, by name; 0 for what the caller says stays off.

    Args:
        model: The network.
        p: The rates, see `RateChoice`. By name, 0 leaves a layer off; for a module that is no dropout layer, it says
            that dropout inside that module's forward may stay off.
    """
    model = unwrap(model)
    require_finite_weights(model)
    found = find_dropout(model)
    rates = {name: float(layer.p) for name, layer in found.items() if layer.p > 0}
    if isinstance(p, Mapping):
        modules = dict(model.named_modules())
        for name, rate in p.items():
            if name not in modules:
                raise NetworkError(f"p: {name!r} is no module of the network; its dropout layers are {listed(found)}.")
            rates[name] = require_rate(rate, f"p[{name!r}]")
            if name not in found and rates[name] > 0:
                raise NetworkError(
                    f"p: {name!r} is {type(modules[name]).__name__} and no dropout layer, so that only 0 (stays off) "
                    f"would work; the dropout layers are {listed(found)}."
                )
    elif p is not None:
        rates = dict.fromkeys(found, require_rate(p, "p"))
    if not found:
        raise NetworkError(
            "model: has no dropout layer (looked for Dropout, Dropout1d/2d/3d, AlphaDropout and FeatureAlphaDropout; "
            f"found {module_kinds(model)}). "
            "bayesnorm.add_dropout(model, p) gives a copy that has some; dropout that a forward calls itself must "
            "become an nn.Dropout layer."
        )
    if not any(rates.values()):
        raise NetworkError(
            f"model: all of its dropout layers ({listed(found)}) have rate 0, so that all samples would agree; "
            "MCDropout(p=0.1) would work, and so would bayesnorm.add_dropout(model, p)."
        )
    for name, module in model.named_modules():
        if rates.get(name) != 0 and drops_inside(module):
            raise NetworkError(refusal(name, module, f"nn.{type(module).__name__}(dropout={module.dropout})"))
    return rates


def drops_inside(module: nn.Module) -> bool:
    """Tell whether it is one of torch's own modules that drop inside their forward."""
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    return isinstance(module, nn.MultiheadAttention) and module.dropout > 0


def require_rate(value: Any, name: str) -> float:
    """Return a rate as a float; refuse what is no probability below 1."""
    requirement = "a rate from 0 to below 1"
    return require_number(name, value, least=0, below=1, requirement=requirement, error=NetworkError)


def refusal(name: str, module: nn.Module, function: str, always: bool = False) -> str:
    """Return the message about a forward that calls dropout itself.

    Args:
        name: Name of the module.
        module: The module.
        function: The dropout function that it calls.
        always: Whether it does so in evaluation mode too.
    """
    where = f"{name!r} ({type(module).__name__})" if name else f"its own forward ({type(module).__name__})"
    cure = "an nn.Dropout layer in its place would work"
    if not always:
        cure += f", and MCDropout(p={{{name!r}: 0}}) leaves it off and samples only the dropout layers"
    mode = " also in evaluation mode" if always else ""
    return f"model: {where} calls {function}{mode}, a dropout that has no layer of its own to draw the mask of; {cure}."
