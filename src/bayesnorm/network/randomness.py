"""Seed the shared random generators temporarily and restore their states afterwards."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def isolated_randomness(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed the global generators that transforms and networks may use, and restore all of them afterwards."""
    python_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        with isolated_torch_randomness(seed, device):
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


def isolated_torch_randomness(seed: int, device: torch.device | None = None) -> contextlib.AbstractContextManager[None]:
    """Seed and restore only torch's generators, which takes some microseconds."""
    return seeded_generators(torch_generators(device), seed)


@contextlib.contextmanager
def seeded_generators(generators: list[torch.Generator], seed: int) -> Iterator[None]:
    """Seed generators, and restore their states afterwards."""
    states = [generator.get_state() for generator in generators]
    try:
        for generator in generators:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def torch_generators(device: torch.device | None) -> list[torch.Generator]:
    """Return the global generators that a network on a device uses."""
    if device is None or device.type != "cuda":
        return [torch.default_generator]
    torch.cuda.init()
    return [torch.default_generator, torch.cuda.default_generators[device.index or 0]]
