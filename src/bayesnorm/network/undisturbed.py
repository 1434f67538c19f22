"""A stretch of work on a private copy of a network that leaves no trace outside of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from .batches import isolated_torch_randomness, seed_torch

# A pass notes in the private copy what it is about, and torch's generators are everyone's: one pass at a time.
_turn = threading.RLock()


@contextlib.contextmanager
def undisturbed(writable: Sequence[Tensor], device: torch.device) -> Iterator[Callable[[], None]]:
    """Put back afterwards what a forward may change: torch's generators, and what it writes to. Threads take turns.

    Gives a function that lets the next pass begin as the first did.

    Args:
        writable: See `writable_tensors`.
        device: Of the network.
    """
    with _turn, isolated_torch_randomness(0, device), unwritten(writable) as put_back:

        def restart() -> None:
            seed_torch(0, device)
            put_back()

        yield restart


@contextlib.contextmanager
def unwritten(writable: Sequence[Tensor]) -> Iterator[Callable[[], None]]:
    """Put back afterwards the tensors that a forward writes to, which a private copy shares with the user's network.

    Gives a function that puts them back at once.
    """
    kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in writable]

    def put_back() -> None:
        for tensor, version, value in kept:
            if tensor._version != version:
                with torch.no_grad():
                    tensor.copy_(value)

    try:
        yield put_back
    finally:
        put_back()
        kept.clear()


def writable_tensors(network: nn.Module) -> list[Tensor]:
    """Tensors that a forward in evaluation mode might write to; batch norm's own does not.

    One that counts its calls, keeps a memory or renormalises an embedding does so in evaluation mode too.
    """
    found: list[Tensor] = []
    for module in network.modules():
        if type(module).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):
            found += (b for b in module._buffers.values() if b is not None and not b.is_inference())
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            found.append(module.weight)
    return found
