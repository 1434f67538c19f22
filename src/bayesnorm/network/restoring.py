"""Run a private copy of a network without side effects outside of the copy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ..errors import WeightsChangedError
from .locks import exclusive_pass
from .randomness import generators_as_they_are, isolated_torch_randomness, seed_torch

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@contextlib.contextmanager
def restore_state(
    writable: Sequence[Tensor],
    device: torch.device,
    statistics: Sequence[Tensor] = (),
    written: set[int] | None = None,
) -> Iterator[Callable[[], None]]:
    """Restore afterwards what a forward pass may change: torch's generators and the tensors that it writes to.

    Threads take turns. Gives a function that resets this state, so that the next forward pass starts like the first.

    Args:
        writable: Tensors that a forward pass might write to, see `writable_tensors`.
        device: The network's device.
        statistics: Tensors that a forward pass might write to without a new version, see `running_statistics`.
        written: A set to which the ids of restored tensors are added.
    """
    with exclusive_pass() as lost:
        lost.append(generators_as_they_are(device))
        stretch = isolated_torch_randomness(0, device), restore_tensors(writable, statistics, written)
        with stretch[0], stretch[1] as put_back:
            lost.append(partial(put_back, all_of_them=True))

            def restart() -> None:
                seed_torch(0, device)
                put_back()

            yield restart


@contextlib.contextmanager
def quiet_vmap() -> Iterator[None]:
    """Suppress torch's warning that an operation is run sample by sample under our `vmap`.

    This warning has its own switch for all threads. `warnings.catch_warnings` could hide or lose other warnings.
    """
    switch: Callable[[bool], None] = torch._C._functorch._set_vmap_fallback_warning_enabled  # type: ignore[attr-defined]
    with exclusive_pass() as lost:
        lost.append(partial(switch, True))
        switch(False)
        try:
            yield
        finally:
            switch(True)


@contextlib.contextmanager
def restore_tensors(
    writable: Sequence[Tensor], statistics: Sequence[Tensor] = (), written: set[int] | None = None
) -> Iterator[Callable[..., None]]:
    """Restore afterwards the tensors that a forward pass writes to, which a copy shares with the user's network.

    Gives a function that restores them immediately: the ones that were written to, or `all_of_them`.
    """
    kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in writable]
    silent = [(tensor, tensor.detach().clone()) for tensor in statistics]

    def put_back(all_of_them: bool = False) -> None:
        changed = [(tensor, value) for tensor, version, value in kept if all_of_them or tensor._version != version]
        changed += [(tensor, value) for tensor, value in silent if all_of_them or not torch.equal(tensor, value)]
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
    """Return tensors that a forward pass might write to in evaluation mode: buffers, attributes, renormalised
    embeddings.

    Examples are networks that count their calls, keep a memory or shorten vectors, also in evaluation mode.
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
    """Return the tensors that batch normalisation writes to without increasing their version."""
    layers = [module for _, module in network.named_modules() if isinstance(module, _NormBase)]
    own = [layer._buffers.get(name) for layer in layers for name in _STATISTICS]
    return [buffer for buffer in own if buffer is not None and not buffer.is_inference()]


def _nothing() -> None:
    """Do nothing."""


class TensorKeeper:
    """Keep the tensors of a private copy of a network unchanged, whatever its forward passes write to them.

    Few networks write to their running statistics in evaluation mode. Statistics that a first series of plain forward
    passes leaves unchanged are therefore not checked again. Changes of weights by others are detected.
    """

    def __init__(self, network: nn.Module) -> None:
        self._writable, self._statistics = writable_tensors(network), running_statistics(network)
        self._looked = False  # whether restore_tensors statistics are already left out
        self.put_back_some = False  # whether a forward pass ever wrote to a tensor
        own = {id(tensor) for tensor in self._writable}
        self._weights = {
            name: tensor
            for name, tensor in network.named_parameters()
            if id(tensor) not in own and not nn.parameter.is_lazy(tensor) and not tensor.is_inference()
        }
        # Fused optimisers do not increase a weight's version, so the smallest weight is compared. A GPU would have to
        # wait.
        smallest = sorted(self._weights.items(), key=lambda pair: (not pair[1].requires_grad, pair[1].numel()))
        self._example = next((name for name, tensor in smallest if tensor.device.type == "cpu"), None)
        self.require_unchanged: Callable[[], None] = _nothing  # refuses weights that changed since the block began

    @contextlib.contextmanager
    def restore_state(
        self,
        device: torch.device,
        plain: bool = True,
        overridden: Container[str] = (),
        again: Callable[[], object] = _nothing,
    ) -> Iterator[Callable[[], None]]:
        """Work without side effects, see the function of this name; refuse weights that change meanwhile.

        Args:
            device: The network's device.
            plain: Whether every layer runs its original forward at least once.
            overridden: Names of tensors whose values are ignored.
            again: Runs the network once more, see `unchanged`.
        """
        written: set[int] = set()
        with (
            restore_state(self._writable, device, self._statistics, written) as restart,
            self.forbid_weight_changes(overridden, again) as self.require_unchanged,
        ):
            yield restart
        self.put_back_some |= bool(written)
        if plain and not self._looked:
            self._statistics = [tensor for tensor in self._statistics if id(tensor) in written]
            self._looked = True

    @contextlib.contextmanager
    def forbid_weight_changes(
        self, overridden: Container[str] = (), again: Callable[[], object] = _nothing
    ) -> Iterator[Callable[[], None]]:
        """Refuse weights that change inside the block; give a function that checks immediately.

        The error is raised even if another one is raised as a consequence.

        Args:
            overridden: Names of tensors whose values are ignored.
            again: Runs the network once more, to find out whether its own forward writes to weights.
        """
        before = {name: tensor._version for name, tensor in self._weights.items() if name not in overridden}
        example = self._example if self._example in before else None
        value = None if example is None else self._weights[example].detach().clone()

        def require_unchanged() -> None:
            now = self._weights
            changed = [name for name, version in before.items() if name in now and now[name]._version != version]
            if value is not None and example in now and not torch.equal(now[example], value):
                changed.append(example)
            if changed and not self._rewritten(changed, again):
                raise WeightsChangedError(
                    "model: its weights changed while it was running, so old and new weights would be mixed. Is it "
                    "being trained in another thread? Wait for the training to end, or use copy.deepcopy(model)."
                )

        try:
            yield require_unchanged
        except Exception:
            require_unchanged()
            raise
        require_unchanged()

    def _rewritten(self, names: list[str], again: Callable[[], object]) -> bool:
        """Return whether the network's own forward writes the same values to these weights, for example by clamping
        them.

        Such weights are not checked again.
        """
        before = {name: (self._weights[name]._version, self._weights[name].detach().clone()) for name in names}
        with contextlib.suppress(Exception):
            again()
        for name, (version, value) in before.items():
            if self._weights[name]._version == version or not torch.equal(self._weights[name], value):
                return False
        for name in names:
            del self._weights[name]
        return True
