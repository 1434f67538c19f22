"""Find a network's batch-norm layers and choose among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..arguments import as_whole
from ..errors import NetworkError

LayerChoice = int | str | Sequence[str] | Callable[[str, nn.Module], bool] | None
"""Names, a predicate `(name, module) -> bool`, the last k layers in running order, or None for all layers."""


@dataclass(frozen=True)
class BatchNormLayer:
    """A batch-norm layer, as the other packages see it.

    Args:
        name: Its name in `named_modules`.
        channels: Number of channels that it normalises.
        eps: The number that it adds to variances.
    """

    name: str
    channels: int
    eps: float


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
                f"layers: the predicate chose none of the {len(ran)} batch-norm layers that run: {listed(ran)}. "
                "Choose at least one."
            )
        return chosen
    names = (choice,) if isinstance(choice, str) else tuple(choice)
    unknown = [name for name in names if name not in ran]
    if unknown or not names:
        what = f"{unknown[0]!r} is not a batch-norm layer that runs" if unknown else "the list is empty"
        raise NetworkError(f"layers: {what}. Use layers that run: {listed(ran)}.")
    return tuple(name for name in ran if name in set(names))


def listed(names: Iterable[str]) -> str:
    """Return up to eight names for a message."""
    texts = list(names)
    shown = ", ".join(map(repr, texts[:8])) or "none"
    return shown if len(texts) <= 8 else f"{shown}, ... ({len(texts)} in all)"


def module_kinds(model: nn.Module) -> str:
    """Return up to twelve classes of a network's modules for a message."""
    kinds = sorted({type(module).__name__ for _, module in model.named_modules()})
    return ", ".join(kinds[:12]) + (", ..." if len(kinds) > 12 else "")
