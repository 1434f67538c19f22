"""Work on a private copy of a network for a while without leaving a trace outside of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ..errors import WeightsChangedError
from .randomness import generators_as_they_are, isolated_torch_randomness, seed_torch
from .turns import turn

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
    with turn() as lost:
        lost.append(generators_as_they_are(device))
        stretch = isolated_torch_randomness(0, device), unwritten(writable, statistics, written)
        with stretch[0], stretch[1] as put_back:
            lost.append(partial(put_back, all_of_them=True))

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
    with turn() as lost:
        lost.append(partial(switch, True))
        switch(False)
        try:
            yield
        finally:
            switch(True)


@contextlib.contextmanager
def unwritten(
    writable: Sequence[Tensor], statistics: Sequence[Tensor] = (), written: set[int] | None = None
) -> Iterator[Callable[..., None]]:
    """Put back afterwards the tensors that a forward writes to, which a private copy shares with the user's network.

    It gives a function that puts them back at once, those that were written to or `all_of_them`.
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


def _nothing() -> None:
    """Do nothing."""


class TensorKeeper:
    """Keeps the tensors of a private copy of a network as they are, however its forwards write to them.

    Hardly a network in evaluation mode writes to running statistics, and there are many: those that a first stretch of
    plain passes leaves as they were are not looked after any more. Weights that others change meanwhile are noticed.
    """

    def __init__(self, network: nn.Module) -> None:
        self._writable, self._statistics = writable_tensors(network), running_statistics(network)
        self._looked = False  # whether statistics that are not written to have been left out
        self.put_back_some = False  # whether a forward ever wrote to a tensor
        own = {id(tensor) for tensor in self._writable}
        self._weights = {
            name: tensor
            for name, tensor in network.named_parameters()
            if id(tensor) not in own and not nn.parameter.is_lazy(tensor) and not tensor.is_inference()
        }
        # Fused optimisers leave no trace in a weight's version: the smallest one is compared. A GPU would have to wait.
        smallest = sorted(self._weights.items(), key=lambda pair: (not pair[1].requires_grad, pair[1].numel()))
        self._example = next((name for name, tensor in smallest if tensor.device.type == "cpu"), None)
        self.require_unchanged: Callable[[], None] = _nothing  # refuses weights that changed since the stretch began

    @contextlib.contextmanager
    def undisturbed(
        self,
        device: torch.device,
        plain: bool = True,
        overridden: Container[str] = (),
        again: Callable[[], object] = _nothing,
    ) -> Iterator[Callable[[], None]]:
        """Work without leaving a trace, see the function of this name; refuse weights that change meanwhile.

        Args:
            device: The network's device.
            plain: Whether every layer runs its own forward at least once.
            overridden: Names of tensors whose values do not count.
            again: Runs the network once more, see `unchanged`.
        """
        written: set[int] = set()
        with (
            undisturbed(self._writable, device, self._statistics, written) as restart,
            self.unchanged(overridden, again) as self.require_unchanged,
        ):
            yield restart
        self.put_back_some |= bool(written)
        if plain and not self._looked:
            self._statistics = [tensor for tensor in self._statistics if id(tensor) in written]
            self._looked = True

    @contextlib.contextmanager
    def unchanged(
        self, overridden: Container[str] = (), again: Callable[[], object] = _nothing
    ) -> Iterator[Callable[[], None]]:
        """Refuse weights that change meanwhile, whatever else goes wrong by it; give a function that looks at once.

        Args:
            overridden: Names of tensors whose values do not count.
            again: Runs the network once more, to tell whether it is its own forward that writes to weights.
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
                    "model: its weights changed while it ran (is it trained in another thread?), so that old and new "
                    "ones would be mixed; run it again when they rest, or use copy.deepcopy(model)."
                )

        try:
            yield require_unchanged
        except Exception:
            require_unchanged()
            raise
        require_unchanged()

    def _rewritten(self, names: list[str], again: Callable[[], object]) -> bool:
        """Tell whether the network's own forward writes these weights, to the same values, as one that clamps them.

        They are then not looked at any more.
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
