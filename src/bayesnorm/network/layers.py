"""Find a network's batch-norm layers and choose among them; find its dropout layers and their rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from bayesnorm_runtime import BatchNormLayer as BatchNormLayer

from ..arguments import as_whole, require_number
from ..errors import NetworkError, warn
from .copying import require_finite_weights, unwrap

LayerChoice = int | str | Sequence[str] | Callable[[str, nn.Module], bool] | None
"""Names, a predicate `(name, module) -> bool`, the last k layers in running order, or None for all layers."""


def find_batchnorm(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return every batch-norm layer by its qualified name: 1d, 2d, 3d, Sync and their subclasses."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def require_python(model: nn.Module) -> None:
    """Refuse a network that is a TorchScript module or contains one."""
    if any(isinstance(module, torch.jit.ScriptModule) for _, module in model.named_modules()):
        raise NetworkError(
            "model: it is a TorchScript module, whose layers are not accessible. Pass the nn.Module that it was "
            "made from."
        )


def require_batchnorm(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return what `find_batchnorm` returns; refuse a network without batch norm."""
    require_python(model)
    layers = find_batchnorm(model)
    if not layers:
        raise NetworkError(
            "model: it has no batch-norm layer (BatchNorm1d/2d/3d, SyncBatchNorm or a subclass); its modules are "
            f"{module_kinds(model)}. Pass a network that was trained with batch normalisation."
        )
    return layers


def choose_layers(model: nn.Module, ran: Sequence[str], choice: LayerChoice) -> tuple[str, ...]:
    """Return the names of the chosen layers, in running order.

    Args:
        model: The network.
        ran: Names of the batch-norm layers that take part in a forward pass, in running order.
        choice: The layers to choose, see `LayerChoice`. Layers that do not run in evaluation mode (such as an auxiliary
            head that is only used in training) are skipped unless they are named.
    """
    if not ran:
        raise NetworkError(
            "model: none of its batch-norm layers runs in evaluation mode, so there is nothing to sample. Pass a "
            "network whose forward uses them."
        )
    if choice is None:
        return tuple(ran)
    last = as_whole(choice)
    if last is not None:
        if not 1 <= last <= len(ran):
            raise NetworkError(
                f"layers={choice}, but the network has {len(ran)} batch-norm layer{'s' * (len(ran) > 1)}. Use "
                f"layers=1{f' to {len(ran)}' * (len(ran) > 1)}, or layers=None for all."
            )
        return tuple(ran[len(ran) - last :])
    if isinstance(choice, nn.Module) or not (isinstance(choice, Iterable) or callable(choice)):
        raise NetworkError(f"layers must be names, a predicate, a whole number or None, got {choice}.")
    if callable(choice):
        modules = dict(model.named_modules())
        chosen = tuple(name for name in ran if choice(name, modules[name]))
        if not chosen:
            raise NetworkError(
                f"layers: the predicate chose none of the {len(ran)} batch-norm layers that run: {listing(ran)}. "
                "Choose at least one."
            )
        return chosen
    names = (choice,) if isinstance(choice, str) else tuple(choice)
    unknown = [name for name in names if name not in ran]
    if unknown or not names:
        what = f"{unknown[0]!r} is not a batch-norm layer that runs" if unknown else "the list is empty"
        raise NetworkError(f"layers: {what}. Use layers that run: {listing(ran)}.")
    return tuple(name for name in ran if name in set(names))


def without_frozen(model: nn.Module, choice: LayerChoice) -> LayerChoice:
    """Return the choice of layers without those that were frozen in training, and warn about them; None means all."""
    model = unwrap(model)
    layers = find_batchnorm(model)
    if choice is not None or not layers:
        return choice
    frozen = [name for name in layers if _is_frozen(model, name)]
    reason = "is in evaluation mode and other modules are not, so it was frozen in training"
    cure = "It is left out. Name it in layers= to sample it"
    if not frozen and any(weight.requires_grad for weight in model.parameters()):
        frozen = [name for name, layer in layers.items() if not layer.training and _has_no_gradient(layer)]
        reason = "has weights that require no gradient, unlike other modules, so it may have been frozen in training"
        cure = "If it was in evaluation mode in training, leave it out with layers="
    if not frozen:
        return choice
    left_out = len(frozen) < len(layers)
    if not left_out:
        cure = (
            "No batch size is that of training. Choose the effective one on validation data: calibrate(posterior, x, "
            "y, batch_size=[8, 32, 128])"
        )
    warn(
        f"model: batch-norm layer {frozen[0]!r} {reason} ({len(frozen)} of {len(layers)} layers). A frozen layer "
        f"never saw the statistics of batches. {cure}."
    )
    left_out = left_out and _is_frozen(model, frozen[0])
    return (lambda name, _: name not in frozen) if left_out else choice


def _is_frozen(model: nn.Module, name: str) -> bool:
    """Return whether a layer is in evaluation mode, but the module that contains it, or all that is trained, is not."""
    layer, parent = model.get_submodule(name), model.get_submodule(name.rpartition(".")[0])
    if layer.training or parent is layer:
        return False
    others = any(module.training and module._parameters for _, module in model.named_modules())
    return parent.training or (others and _has_no_gradient(layer))


def _has_no_gradient(layer: nn.Module) -> bool:
    weights = list(layer.parameters())
    return bool(weights) and not any(weight.requires_grad for weight in weights)


def listing(names: Iterable[str]) -> str:
    """Return up to eight names for a message."""
    texts = list(names)
    shown = ", ".join(map(repr, texts[:8])) or "none"
    return shown if len(texts) <= 8 else f"{shown}, ... ({len(texts)} in all)"


def module_kinds(model: nn.Module) -> str:
    """Return up to twelve classes of a network's modules for a message."""
    kinds = sorted({type(module).__name__ for _, module in model.named_modules()})
    return ", ".join(kinds[:12]) + (", ..." if len(kinds) > 12 else "")


RateChoice = float | Mapping[str, float] | None
"""One rate for all dropout layers, rates by name (others keep theirs), or None for the layers' own rates."""


@dataclass(frozen=True)
class DropoutKind:
    """Properties of a kind of dropout layer."""

    channels: bool = False  # drops whole channels, not single entries
    alpha: bool = False  # preserves mean and variance, for self-normalising networks
    unbatched: int | None = None  # an input with this many axes is one example, with channels first


DROPOUT_KINDS: dict[Callable[..., Any], DropoutKind] = {
    nn.Dropout.forward: DropoutKind(),
    nn.Dropout1d.forward: DropoutKind(channels=True, unbatched=2),
    nn.Dropout2d.forward: DropoutKind(channels=True),
    nn.Dropout3d.forward: DropoutKind(channels=True, unbatched=4),
    nn.AlphaDropout.forward: DropoutKind(alpha=True),
    nn.FeatureAlphaDropout.forward: DropoutKind(channels=True, alpha=True),
}


def find_dropout(network: nn.Module) -> dict[str, _DropoutNd]:
    """Return every dropout layer by name, including subclasses without a custom forward."""
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, _DropoutNd) and type(module).forward in DROPOUT_KINDS and "forward" not in vars(module)
    }


def dropout_rates(model: nn.Module, p: RateChoice = None) -> dict[str, float]:
    """Return the rate of every dropout layer to sample, by name; 0 for those that the caller switches off.

    Args:
        model: The network.
        p: The rates, see `RateChoice`. A rate of 0 switches a layer off. For a module that is not a dropout layer, 0
            means that dropout inside that module's forward may stay off.
    """
    model = unwrap(model)
    require_finite_weights(model)
    layers = find_dropout(model)
    rates = {name: float(layer.p) for name, layer in layers.items() if layer.p > 0}
    if isinstance(p, Mapping):
        modules = dict(model.named_modules())
        for name, rate in p.items():
            if name not in modules:
                raise NetworkError(f"p: the network has no module {name!r}. Its dropout layers are {listing(layers)}.")
            rates[name] = require_rate(rate, f"p[{name!r}]")
            if name not in layers and rates[name] > 0:
                raise NetworkError(
                    f"p: {name!r} is {type(modules[name]).__name__} and not a dropout layer, so its rate can only be "
                    f"0, which keeps it off. The dropout layers are {listing(layers)}."
                )
    elif p is not None:
        rates = dict.fromkeys(layers, require_rate(p, "p"))
    if not layers:
        raise NetworkError(
            "model: it has no dropout layer (Dropout, Dropout1d/2d/3d, AlphaDropout or FeatureAlphaDropout); its "
            f"modules are {module_kinds(model)}. Use bayesnorm.add_dropout(model, p) for a copy with dropout layers. "
            "Replace dropout that a forward calls directly by nn.Dropout layers."
        )
    if not any(rates.values()):
        raise NetworkError(
            f"model: all of its dropout layers ({listing(layers)}) have rate 0, so all samples would be equal. Use "
            "MCDropout(p=0.1) or bayesnorm.add_dropout(model, p)."
        )
    for name, module in model.named_modules():
        if rates.get(name) != 0 and drops_inside(module):
            raise NetworkError(refusal(name, module, f"nn.{type(module).__name__}(dropout={module.dropout})"))
    return rates


def drops_inside(module: nn.Module) -> bool:
    """Return whether a module is one of torch's own that apply dropout inside their forward."""
    if isinstance(module, nn.RNNBase):
        return module.dropout > 0 and module.num_layers > 1
    return isinstance(module, nn.MultiheadAttention) and module.dropout > 0


def require_rate(value: Any, name: str) -> float:
    """Return a rate as a float; refuse a value that is not from 0 to below 1."""
    requirement = "a rate from 0 to below 1"
    return require_number(name, value, least=0, below=1, requirement=requirement, error=NetworkError)


def refusal(name: str, module: nn.Module, function: str, always: bool = False) -> str:
    """Return the message about a forward that calls dropout directly.

    Args:
        name: Name of the module.
        module: The module.
        function: The dropout function that it calls.
        always: Whether it does so in evaluation mode too.
    """
    where = f"{name!r} ({type(module).__name__})" if name else f"its own forward ({type(module).__name__})"
    cure = "Use an nn.Dropout layer instead"
    if not always:
        cure += f", or MCDropout(p={{{name!r}: 0}}) to keep it off and sample only the dropout layers"
    mode = " also in evaluation mode" if always else ""
    return f"model: {where} calls {function}{mode}, but only dropout layers can be sampled. {cure}."
