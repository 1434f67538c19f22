"""Run a private copy of a network without side effects: on its tensors, and on the shared random generators."""

from __future__ import annotations

import contextlib
import operator
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from ..errors import WeightsChangedError
from .locks import exclusive_pass

_VERSION = operator.attrgetter("_version")

_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")

Source = tuple[Callable[[int], object], Callable[[], Any], Callable[[Any], object]]
"""The functions that seed a generator, return its state, and set its state."""

_PYTHON: Source = (random.seed, random.getstate, random.setstate)
_NUMPY: Source = (lambda seed: np.random.seed(seed % 2**32), np.random.get_state, np.random.set_state)


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
    with exclusive_pass() as cleanups:
        generators = torch_generators(device)
        generator_states = [generator.get_state() for generator in generators]
        saved = _SavedTensors(writable, statistics)

        def restore_generators() -> None:
            for generator, state in zip(generators, generator_states, strict=True):
                generator.set_state(state)

        def restart() -> None:
            for generator in generators:
                generator.manual_seed(0)
            saved.restore()

        cleanups += [restore_generators, partial(saved.restore, everything=True)]
        try:
            restart()
            yield restart
        finally:
            restore_generators()
            saved.restore()
            if written is not None:
                written |= saved.written


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


class _SavedTensors:
    """Values of tensors that a copy shares with the user's network, to restore them if a forward pass writes to them.

    Args:
        writable: Tensors whose version increases when they are written to.
        statistics: Tensors whose version may stay the same.
    """

    def __init__(self, writable: Sequence[Tensor], statistics: Sequence[Tensor]) -> None:
        self._versioned = [(tensor, tensor._version, tensor.detach().clone()) for tensor in writable]
        self._silent = [(tensor, tensor.detach().clone()) for tensor in statistics]
        self.written: set[int] = set()  # ids of the tensors that were restored

    def restore(self, everything: bool = False) -> None:
        """Restore the tensors that were written to, or all of them."""
        for tensor, version, value in self._versioned:
            if everything or tensor._version != version:
                self._put_back(tensor, value)
        for tensor, value in self._silent:
            if everything or not torch.equal(tensor, value):
                self._put_back(tensor, value)

    @torch.no_grad()
    def _put_back(self, tensor: Tensor, value: Tensor) -> None:
        self.written.add(id(tensor))
        tensor.copy_(value)


@contextlib.contextmanager
def restore_tensors(writable: Sequence[Tensor], statistics: Sequence[Tensor] = ()) -> Iterator[Callable[[], None]]:
    """Restore afterwards the tensors that a forward pass writes to; give a function that restores them immediately."""
    saved = _SavedTensors(writable, statistics)
    try:
        yield saved.restore
    finally:
        saved.restore()


def writable_tensors(network: nn.Module) -> list[Tensor]:
    """Return tensors that a forward pass might write to in evaluation mode: buffers, attributes, renormalised
    embeddings.

    Examples are networks that count their calls, keep a memory or shorten vectors, also in evaluation mode.
    """
    statistics = {id(tensor) for tensor in running_statistics(network)}
    tensors: list[Tensor] = []
    for _, module in network.named_modules():
        values = (*module._buffers.values(), *vars(module).values())
        tensors += (value for value in values if isinstance(value, Tensor) and not value.is_inference())
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
            tensors.append(module.weight)
    return [tensor for tensor in tensors if id(tensor) not in statistics]


def running_statistics(network: nn.Module) -> list[Tensor]:
    """Return the tensors that batch normalisation writes to without increasing their version."""
    layers = [module for _, module in network.named_modules() if isinstance(module, _NormBase)]
    buffers = [layer._buffers.get(name) for layer in layers for name in _STATISTICS]
    return [buffer for buffer in buffers if buffer is not None and not buffer.is_inference()]


def _nothing() -> None:
    """Do nothing."""


class TensorKeeper:
    """Keep the tensors of a private copy of a network unchanged, whatever its forward passes write to them.

    Few networks write to their running statistics in evaluation mode. Statistics that a first series of plain forward
    passes leaves unchanged are therefore not checked again. Changes of weights by others are detected.
    """

    def __init__(self, network: nn.Module) -> None:
        self._writable, self._statistics = writable_tensors(network), running_statistics(network)
        self._looked = False  # whether statistics that no forward pass writes to are already left out
        self.put_back_some = False  # whether a forward pass ever wrote to a tensor
        writable = {id(tensor) for tensor in self._writable}
        self._weights = {
            name: tensor
            for name, tensor in network.named_parameters()
            if id(tensor) not in writable and not nn.parameter.is_lazy(tensor) and not tensor.is_inference()
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
        overridden: Collection[str] = (),
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
        self, overridden: Collection[str] = (), again: Callable[[], object] = _nothing
    ) -> Iterator[Callable[[], None]]:
        """Refuse weights that change inside the block; give a function that checks immediately.

        The error is raised even if another one is raised as a consequence.

        Args:
            overridden: Names of tensors whose values are ignored.
            again: Runs the network once more, to find out whether its own forward writes to weights.
        """
        weights = self._weights
        if overridden and not weights.keys().isdisjoint(overridden):
            weights = {name: tensor for name, tensor in weights.items() if name not in overridden}
        names, tensors = tuple(weights), tuple(weights.values())
        versions = list(map(_VERSION, tensors))
        example = None if self._example is None else weights.get(self._example)
        example_was = None if example is None else example.detach().clone()

        def require_unchanged() -> None:
            same_example = example is None or example_was is None or torch.equal(example, example_was)
            if same_example and list(map(_VERSION, tensors)) == versions:
                return
            changed = [
                name
                for name, tensor, version in zip(names, tensors, versions, strict=True)
                if tensor._version != version or (tensor is example and not same_example)
            ]
            changed = [name for name in changed if name in self._weights]
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


def isolated_randomness(seed: int, device: torch.device | None = None) -> contextlib.AbstractContextManager[None]:
    """Seed the global generators that transforms and networks may use, and restore all of them afterwards."""
    return _seeded([_PYTHON, _NUMPY, *map(_source, torch_generators(device))], seed)


def isolated_torch_randomness(seed: int, device: torch.device | None = None) -> contextlib.AbstractContextManager[None]:
    """Seed and restore only torch's generators, which takes some microseconds."""
    return seeded_generators(torch_generators(device), seed)


def seeded_generators(generators: Iterable[torch.Generator], seed: int) -> contextlib.AbstractContextManager[None]:
    """Seed generators, and restore their states afterwards."""
    return _seeded([*map(_source, generators)], seed)


def torch_generators(device: torch.device | None) -> list[torch.Generator]:
    """Return the global generators that a network on a device uses."""
    if device is None or device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()
    return [torch.default_generator, torch.cuda.default_generators[device.index or 0]]


def _source(generator: torch.Generator) -> Source:
    return generator.manual_seed, generator.get_state, generator.set_state


@contextlib.contextmanager
def _seeded(sources: list[Source], seed: int) -> Iterator[None]:
    """Seed generators once the states of all are saved; restore them also if an interrupt arrives meanwhile."""
    states = [(set_state, get_state()) for _, get_state, set_state in sources]
    try:
        for set_seed, _, _ in sources:
            set_seed(seed)
        yield
    finally:
        try:
            for set_state, state in states:
                set_state(state)
        except BaseException:
            for set_state, state in states:
                set_state(state)
            raise
