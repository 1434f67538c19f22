"""Copy the user's network, so that changes to the copy cannot affect the original."""

from __future__ import annotations

import copy
import hashlib
import operator
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NetworkError
from .locks import fork_generation


def unwrap(model: nn.Module) -> nn.Module:
    """Return the network inside wrappers of torch.compile and data parallelism."""
    if not isinstance(model, nn.Module):
        raise NetworkError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def private_copy(model: nn.Module, forward_kwargs: Mapping[str, Any] | None = None) -> nn.Module:
    """Return a copy of the module tree, in evaluation mode, that shares every tensor with the original.

    It needs no memory for tensors. Flags, hooks, buffers and methods of the copy can be changed freely.

    Args:
        model: The network.
        forward_kwargs: Further arguments of all forward passes of the copy.
    """
    shared = {id(tensor): tensor for _, module in model.named_modules() for tensor in _tensors(module)}
    duplicate = _deep_copy(model, shared)
    duplicate.eval()  # the result is ignored: a custom train() may not return the network
    if forward_kwargs:
        duplicate.forward = partial(duplicate.forward, **forward_kwargs)
    return duplicate


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def weight_digests(model: nn.Module, without: Collection[str] = ()) -> dict[str, str]:
    """Return the dtype and a digest of each parameter and buffer by name, except those named and counts of batches."""
    return {
        name: f"{tensor.dtype} {_digest(tensor)}"
        for name, tensor in tensors_of(model).items()
        if name not in without and not name.endswith("num_batches_tracked") and tensor.layout is torch.strided
    }


def changed_weights(model: nn.Module, digests: Mapping[str, str]) -> list[str]:
    """Return the names of parameters and buffers whose values differ from those that `weight_digests` described.

    A network in higher precision is compared in the earlier one. In lower precision it cannot be compared.
    """
    dtypes = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
    changed = []
    for name, tensor in tensors_of(model).items():
        kind, _, digest = digests.get(name, "").rpartition(" ")
        dtype = dtypes.get(kind)
        if dtype is None or torch.promote_types(dtype, tensor.dtype) != tensor.dtype:
            continue
        if _digest(tensor.to(dtype)) != digest:
            changed.append(name)
    return changed


def _digest(tensor: Tensor) -> str:
    content: Any = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the network; refuse a network on several devices."""
    devices = {tensor.device for tensor in tensors_of(model).values()}
    if len(devices) != 1:
        places = ", ".join(sorted(str(device) for device in devices)) or "no device (it has no tensors)"
        raise NetworkError(f"model: its tensors are on {places}. Move all of them to one device.")
    (device,) = devices
    if device.type == "meta":
        raise NetworkError("model: its tensors are on the meta device and hold no values. Load its weights first.")
    return device


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype that floating inputs are converted to: that of the first floating parameter (or buffer)."""
    for tensor in tensors_of(model).values():
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.get_default_dtype()


def require_initialised(model: nn.Module) -> None:
    """Refuse a network with a parameter or buffer that is not initialised; the error names it."""
    for name, tensor in tensors_of(model).items():
        if nn.parameter.is_lazy(tensor):
            raise NetworkError(f"model: {name} is not initialised yet. Run the network once on real data first.")


@torch.no_grad()
def require_finite_weights(model: nn.Module) -> None:
    """Refuse a network with a parameter or buffer that contains NaN or infinity; the error names it."""
    require_initialised(model)
    for name, tensor in tensors_of(model).items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            bad = int((~torch.isfinite(tensor)).sum())
            raise NetworkError(
                f"model: {name} has {bad} NaN or infinite values out of {tensor.numel()}. Load weights from before "
                "training diverged."
            )


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """Yield parameters, buffers and plain tensor attributes of one module."""
    yield from (p for p in module._parameters.values() if p is not None)
    yield from (b for b in module._buffers.values() if b is not None)
    yield from (value for value in vars(module).values() if isinstance(value, Tensor))


def own_copy(model: nn.Module, forward_kwargs: Mapping[str, Any] | None = None) -> nn.Module:
    """Return a copy of a network, in evaluation mode, that shares nothing with it; see `private_copy`."""
    return _deep_copy(private_copy(model, forward_kwargs), {})


def _deep_copy(model: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Return a deep copy that shares what is in the memo; refuse a network that cannot be copied."""
    try:
        duplicate: nn.Module = copy.deepcopy(model, memo)
        return duplicate
    except Exception as error:
        raise NetworkError(
            f"model: {type(model).__name__} cannot be copied with copy.deepcopy ({error}), which is needed to leave "
            "it unchanged. Remove the attribute that cannot be copied, or give its class a __deepcopy__."
        ) from error


class Original:
    """Detect whether private copies of a network are outdated since this object was made.

    They are if the network was moved or had modules or tensors replaced, or if a fork interrupted a forward pass.
    """

    def __init__(self, model: nn.Module) -> None:
        self._fork_generation = fork_generation()
        tensors = tensors_of(model).values()
        # Moving changes parameters in place and replaces only buffers, and a network may have no buffers.
        self._first = next((tensor for tensor in tensors if tensor.is_floating_point()), next(iter(tensors)))
        self._first_was = self._first.device, self._first.dtype
        modules = [module for _, module in model.named_modules()]
        self._registries = [
            registry for module in modules for registry in (module._modules, module._parameters, module._buffers)
        ]
        self._parts = list(self._current_parts())

    def changed(self) -> bool:
        """Return whether the network has changed, or a private copy may be in the middle of a forward pass."""
        if self._fork_generation != fork_generation():
            return True
        moved = (self._first.device, self._first.dtype) != self._first_was
        return moved or not all(map(operator.is_, self._current_parts(), self._parts))

    def _current_parts(self) -> Iterator[Any]:
        """Yield all modules, parameters and buffers, then the end mark, which reveals what was added at the end."""
        return chain(chain.from_iterable(map(dict.values, self._registries)), [_END])


_END = object()


@torch.no_grad()
def reset_weights(network: nn.Module, otherwise: str) -> None:
    """Initialise weights again with the global generator; frozen weights and running statistics keep their values.

    Args:
        network: The network, which must not be the user's.
        otherwise: What the user can pass instead if some parameters cannot be initialised, for the error.
    """
    frozen: list[Tensor] = [parameter for parameter in network.parameters() if not parameter.requires_grad]
    for _, module in network.named_modules():
        parameters = list(module.parameters(recurse=False))
        if parameters and not any(parameter.requires_grad for parameter in parameters):
            frozen += module.buffers(recurse=False)
    saved = [(tensor, tensor.clone()) for tensor in frozen]
    for name, module in network.named_modules():
        reset: Any = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()
        elif any(parameter is not None and parameter.requires_grad for parameter in module._parameters.values()):
            raise NetworkError(
                f"model: {name or type(module).__name__} has parameters but no reset_parameters(), so training cannot "
                f"start from new weights. Pass {otherwise}."
            )
    for tensor, value in saved:
        tensor.copy_(value)
