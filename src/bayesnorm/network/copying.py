"""Copy the user's network, so that nothing done to the copy can reach the original."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError


def unwrap(model: nn.Module) -> nn.Module:
    """Return the network inside torch.compile's and the data-parallel wrappers."""
    if not isinstance(model, nn.Module):
        raise NetworkError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def private_copy(model: nn.Module) -> nn.Module:
    """Return a copy of the module tree in evaluation mode that shares every tensor with the original.

    It costs no tensor memory, and flags, hooks, buffers and methods of the copy can be changed freely.
    """
    shared = {id(tensor): tensor for _, module in model.named_modules() for tensor in _tensors(module)}
    try:
        duplicate: nn.Module = copy.deepcopy(model, dict(shared))
    except Exception as error:
        raise NetworkError(
            f"model: {type(model).__name__} cannot be copied with copy.deepcopy ({error}), which is needed to leave it "
            "untouched; remove the attribute that refuses, or give its class a __deepcopy__."
        ) from error
    duplicate.eval()  # whose result counts for nothing: a train() of the user's own need not return the network
    return duplicate


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def device_of(model: nn.Module) -> torch.device:
    """Return the one device that the network is on; refuse a network on several."""
    devices = {tensor.device for tensor in tensors_of(model).values()}
    if len(devices) != 1:
        found = ", ".join(sorted(str(device) for device in devices)) or "no tensor at all"
        raise NetworkError(f"model: its tensors are on {found}; all of them on one device would work.")
    (device,) = devices
    if device.type == "meta":
        raise NetworkError("model: its tensors are on the meta device and hold no values; load its weights first.")
    return device


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype that floating inputs are brought to: that of the first floating parameter (or buffer)."""
    for tensor in tensors_of(model).values():
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.get_default_dtype()


def require_initialised(model: nn.Module) -> None:
    """Refuse a network with a parameter or buffer that has no values yet, and name it."""
    for name, tensor in tensors_of(model).items():
        if nn.parameter.is_lazy(tensor):
            raise NetworkError(f"model: {name} is not initialised yet; run the network once on real data first.")


@torch.no_grad()
def require_finite_weights(model: nn.Module) -> None:
    """Refuse a network with a parameter or buffer that holds NaN or infinity, and name it."""
    require_initialised(model)
    for name, tensor in tensors_of(model).items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            bad = int((~torch.isfinite(tensor)).sum())
            raise NetworkError(
                f"model: {name} holds {bad} NaN or infinite values out of {tensor.numel()}; "
                "load weights from before training diverged."
            )


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Give parameters, buffers and plain tensor attributes of one module."""
    yield from (p for p in module._parameters.values() if p is not None)
    yield from (b for b in module._buffers.values() if b is not None)
    yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def own_copy(model: nn.Module) -> nn.Module:
    """Return a copy of a network that shares nothing with it, in evaluation mode."""
    try:
        return copy.deepcopy(private_copy(model))
    except NetworkError:
        raise
    except Exception as error:
        raise NetworkError(
            f"model: {type(model).__name__} cannot be copied with copy.deepcopy ({error}), which is needed to leave it "
            "untouched; remove the attribute that refuses, or give its class a __deepcopy__."
        ) from error


class Original:
    """Tells whether a network was moved, or had modules or tensors replaced, since this was made of it."""

    def __init__(self, model: nn.Module) -> None:
        own = tensors_of(model).values()
        # Moving changes a parameter's values in place, and replaces buffers only: a network may have none.
        self._first = next((tensor for tensor in own if tensor.is_floating_point()), next(iter(own)))
        self._first_was = self._first.device, self._first.dtype
        self._parts = [
            (mapping, key, value)
            for _, module in model.named_modules()
            for mapping in (module._modules, module._parameters, module._buffers)
            for key, value in mapping.items()
        ]

    def changed(self) -> bool:
        """Tell whether the network is another one now."""
        moved = (self._first.device, self._first.dtype) != self._first_was
        return moved or any(mapping.get(key) is not value for mapping, key, value in self._parts)


@torch.no_grad()
def reset_weights(network: nn.Module, otherwise: str) -> None:
    """Draw initial weights anew, from the global generator; what is frozen keeps its values, running statistics too.

    Args:
        network: The network, which must not be the user's.
        otherwise: What the error says would work where some parameters cannot start afresh.
    """
    kept: list[Tensor] = [parameter for parameter in network.parameters() if not parameter.requires_grad]
    for _, module in network.named_modules():
        own = list(module.parameters(recurse=False))
        if own and not any(parameter.requires_grad for parameter in own):
            kept += module.buffers(recurse=False)
    frozen = [(tensor, tensor.clone()) for tensor in kept]
    for name, module in network.named_modules():
        reset: Any = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()
        elif any(parameter is not None and parameter.requires_grad for parameter in module._parameters.values()):
            raise NetworkError(
                f"model: {name or type(module).__name__} has parameters but no reset_parameters(), so that training "
                f"cannot start afresh; {otherwise} would work."
            )
    for tensor, value in frozen:
        tensor.copy_(value)
