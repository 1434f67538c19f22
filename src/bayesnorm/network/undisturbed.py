"""Work on a private copy of a network for a while without leaving a trace outside of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from .randomness import isolated_torch_randomness, seed_torch

# A pass notes in the private copy what it is about, and torch's generators are everyone's: one pass at a time.
_turn = threading.RLock()

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@contextlib.contextmanager
def undisturbed(
    writable: Sequence[Tensor],
    device: torch.device,
    statistics: Sequence[Tensor] = (),
    written: set[int] | None = None,
) -> Iterator[Callable[[], None]]:
    """Put back afterwards what a forward may change: torch's generators, and what it writes to. Threads take turns.

    It gives a function that lets the next pass begin as the first did.

    Args:
        writable: Tensors that a forward might write to, see `writable_tensors`.
        device: The network's device.
        statistics: Tensors that a forward might write to unseen, see `running_statistics`.
        written: A set to which the ids of tensors that had to be put back are added.
    """
    with _turn, isolated_torch_randomness(0, device), unwritten(writable, statistics, written) as put_back:

        def restart() -> None:
            seed_torch(0, device)
            put_back()

        yield restart


@contextlib.contextmanager
def quiet_vmap() -> Iterator[None]:
    """Keep torch from telling users that it runs one of their operations draw by draw under our `vmap`.

    That warning has a switch of its own, for all threads; `warnings.catch_warnings` would hide, or in a race of threads
    lose, other warnings and filters.
    """
    switch: Callable[[bool], None] = torch._C._functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    with _turn:
        switch(False)
        try:
            yield
        finally:
            switch(True)


@contextlib.contextmanager
def unwritten(
    writable: Sequence[Tensor], statistics: Sequence[Tensor] = (), written: set[int] | None = None
) -> Iterator[Callable[[], None]]:
    """Put back afterwards the tensors that a forward writes to, which a private copy shares with the user's network.

    It gives a function that puts them back at once.
    """
    kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in writable]
    silent = [(tensor, tensor.detach().clone()) for tensor in statistics]

    def put_back() -> None:
        changed = [(tensor, value) for tensor, version, value in kept if tensor._version != version]
        changed += [(tensor, value) for tensor, value in silent if not torch.equal(tensor, value)]
        with torch.no_grad():
            for tensor, value in changed:
                tensor.copy_(value)
        if written is not None:
            written.update(id(tensor) for tensor, _ in changed)

    try:
        yield put_back
    finally:
        put_back()
        kept.clear()
        silent.clear()


def writable_tensors(network: nn.Module) -> list[Tensor]:
    """Return tensors that a forward might write to in evaluation mode: buffers, attributes, renormalised embeddings.

    A forward that counts its calls, keeps a memory or shortens vectors does so in evaluation mode too.
    """
    apart = {id(tensor) for tensor in running_statistics(network)}
    found: list[Tensor] = []
    for _, module in network.named_modules():
        own = (*module._buffers.values(), *vars(module).values())
        found += (value for value in own if isinstance(value, Tensor) and not value.is_inference())
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            found.append(module.weight)
    return [tensor for tensor in found if id(tensor) not in apart]


def running_statistics(network: nn.Module) -> list[Tensor]:
    """Return what normalisation by the batch writes to, which leaves no trace in a tensor's version."""
    layers = [module for _, module in network.named_modules() if isinstance(module, _NormBase)]
    own = [layer._buffers.get(name) for layer in layers for name in _STATISTICS]
    return [buffer for buffer in own if buffer is not None and not buffer.is_inference()]


class TensorKeeper:
    """Keeps the tensors of a private copy of a network as they are, however its forwards write to them.

    Hardly a network in evaluation mode writes to running statistics, and there are many: those that a first stretch of
    plain passes leaves as they were are not looked after any more.
    """

    def __init__(self, network: nn.Module) -> None:
        self._writable, self._statistics = writable_tensors(network), running_statistics(network)
        self._looked = False  # whether statistics that are not written to have been left out

    @contextlib.contextmanager
    def undisturbed(self, device: torch.device, plain: bool = True) -> Iterator[Callable[[], None]]:
        """Work without leaving a trace, see the function of this name.

        Args:
            device: The network's device.
            plain: Whether every layer runs its own forward at least once.
        """
        written: set[int] = set()
        with undisturbed(self._writable, device, self._statistics, written) as restart:
            yield restart
        if plain and not self._looked:
            self._statistics = [tensor for tensor in self._statistics if id(tensor) in written]
            self._looked = True
