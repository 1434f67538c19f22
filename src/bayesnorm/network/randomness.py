"""Seed the shared random generators temporarily and restore their states afterwards."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

import numpy as np
import torch


@contextlib.contextmanager
def isolated_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators that transforms and networks may use, and restore all of them afterwards."""
    kept = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        with isolated_torch_randomness(seed, device):
            yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])


def isolated_torch_randomness(seed: int, device: torch.device | None = None) -> contextlib.AbstractContextManager[None]:
    """Seed and restore only torch's generators, which takes some microseconds."""
    return seeded_generators(_generators(device), seed)


@contextlib.contextmanager
def seeded_generators(generators: list[torch.Generator], seed: int) -> Iterator[None]:
    """Seed generators, and restore their states afterwards."""
    kept = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, kept, strict=True):
            generator.set_state(state)


def generators_as_they_are(device: torch.device | None = None) -> Callable[[], None]:
    """Return a function that restores the current states of torch's generators."""
    kept = [(generator, generator.get_state()) for generator in _generators(device)]

    def put_back() -> None:
        for generator, state in kept:
            generator.set_state(state)

    return put_back


def seed_torch(seed: int, device: torch.device | None = None) -> None:
    """Seed torch's generators, inside `isolated_torch_randomness`."""
    for generator in _generators(device):
        generator.manual_seed(seed)


def _generators(device: torch.device | None) -> list[torch.Generator]:
    if device is None or device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()
    return [torch.default_generator, torch.cuda.default_generators[device.index or 0]]
