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
"""Names, a predicate `(name, module) -> bool`, the last k layers as they run, or None for all of them."""


@dataclass(frozen=True)
class BatchNormLayer:
    """What the rest of the package may know of a batch-norm layer.

    Args:
        name: Its name in `named_modules`.
        channels: How many channels it normalises.
        eps: The number that it adds to variances.
    """

    name: str
    channels: int
    eps: float


def find_batchnorm(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return every batch-norm layer by its qualified name: 1d, 2d, 3d, Sync and their subclasses."""
    return {name: module for name, module in model.named_modules() if isinstance(module, _BatchNorm)}


def require_python(model: nn.Module) -> None:
    """Refuse a network that is TorchScript, or has a part that is."""
    if any(isinstance(module, torch.jit.ScriptModule) for _, module in model.named_modules()):
        raise NetworkError(
            "model: is a TorchScript module, whose layers cannot be reached; pass the nn.Module it was made from."
        )


def require_batchnorm(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return what `find_batchnorm` does; refuse a network without batch norm, and say what was looked for."""
    require_python(model)
    found = find_batchnorm(model)
    if not found:
        raise NetworkError(
            "model: has no batch-norm layer (looked for BatchNorm1d/2d/3d, SyncBatchNorm and subclasses; "
            f"found {module_kinds(model)}). "
            "A network trained with batch normalisation would work."
        )
    return found


def choose_layers(model: nn.Module, ran: Sequence[str], choice: LayerChoice) -> tuple[str, ...]:
    """Return the chosen layers' names, in the order in which they run.

    Args:
        model: The network.
        ran: Names of the batch-norm layers that took part in a forward pass, in running order.
        choice: Which of them, see `LayerChoice`. Layers that do not run in evaluation (an auxiliary head that is only
            used in training) are passed over unless they are asked for by name.
    """
    if not ran:
        raise NetworkError("model: none of its batch-norm layers runs in evaluation mode; nothing to resample.")
    if choice is None:
        return tuple(ran)
    last = as_whole(choice)
    if last is not None:
        if not 1 <= last <= len(ran):
            raise NetworkError(
                f"layers: {choice} was given, but {len(ran)} batch-norm layers run; 1 to {len(ran)} would work."
            )
        return tuple(ran[len(ran) - last :])
    if isinstance(choice, nn.Module) or not (isinstance(choice, Iterable) or callable(choice)):
        raise NetworkError(f"layers: {choice} was given; pass names, a predicate, a whole number k or None.")
    if callable(choice):
        modules = dict(model.named_modules())
        chosen = tuple(name for name in ran if choice(name, modules[name]))
        if not chosen:
            raise NetworkError(f"layers: the predicate chose none of {len(ran)} layers, e.g. {listed(ran)}.")
        return chosen
    names = (choice,) if isinstance(choice, str) else tuple(choice)
    unknown = [name for name in names if name not in ran]
    if unknown or not names:
        what = f"{unknown[0]!r} is not a batch-norm layer that runs" if unknown else "an empty list was given"
        raise NetworkError(f"layers: {what}; the layers that run are {listed(ran)}.")
    return tuple(name for name in ran if name in set(names))


def listed(names: Iterable[str]) -> str:
    """Return names for a message, the first eight of them."""
    given = list(names)
    shown = ", ".join(map(repr, given[:8])) or "none"
    return shown if len(given) <= 8 else f"{shown}, ... ({len(given)} in all)"


def module_kinds(model: nn.Module) -> str:
    """Return the classes of a network's modules for a message, the first twelve of them."""
    kinds = sorted({type(module).__name__ for _, module in model.named_modules()})
    return ", ".join(kinds[:12]) + (", ..." if len(kinds) > 12 else "")
