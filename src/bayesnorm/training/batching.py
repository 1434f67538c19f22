"""Training data of every kind as (x, y) batches on the network's device, in an order that depends on the seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ..arguments import require_whole
from ..errors import InputError
from ..network import as_input, as_tensor, seeded_generators

Pair = tuple[Tensor, Tensor]

# Maximum number of rows and numbers in the digest of arrays.
DIGEST_ROWS, DIGEST_ELEMENTS = 256, 2**20


def training_batches(
    data: Any, y: Any, batch_size: int | None, device: torch.device, dtype: torch.dtype, seed: int
) -> Batches:
    """Return batches on the network's device, given a pair, x and `y`, a `DataLoader` or a `Dataset`."""
    if isinstance(data, DataLoader):
        if y is not None:
            raise InputError("y must be left out if data is a DataLoader, whose batches contain the targets.")
        if batch_size not in (None, _batch_size(data)):
            raise InputError(
                f"batch_size is {batch_size}, but the DataLoader has batch size {_batch_size(data)}. Leave batch_size "
                "out, or make the loader with that batch size."
            )
        return _LoaderBatches(data, device, dtype, seed)
    if batch_size is None:
        raise InputError(f"batch_size is needed if data is a {type(data).__name__}. Pass a whole number from 2.")
    requirement = "a whole number from 2"
    batch_size = require_whole("batch_size", batch_size, 2, requirement=requirement, error=InputError)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if y is not None or isinstance(data, tuple | list):
        x, y = _pair(data, y, "data", device, dtype)
        if len(x) < 2:
            raise InputError("data has 1 row, but at least 2 are needed.")
        return _ArrayBatches(x, y, min(batch_size, len(x)))
    if isinstance(data, IterableDataset):
        return _LoaderBatches(DataLoader(data, batch_size=batch_size), device, dtype, seed)
    if isinstance(data, Tensor | np.ndarray) or hasattr(data, "to_numpy"):
        raise InputError(f"y is needed if data is an array of inputs ({type(data).__name__}). Pass the targets as y.")
    rows = len(data) if hasattr(data, "__len__") and hasattr(data, "__getitem__") else None
    if rows is None or isinstance(data, str | bytes | Mapping):
        raise InputError(
            f"data must be a pair (x, y), a DataLoader or a Dataset of such pairs, got {type(data).__name__}."
        )
    if rows < 2:
        raise InputError(f"data has {rows} rows, but at least 2 are needed.")
    return _DatasetBatches(data, min(batch_size, rows), device, dtype, seed)


def validation_rows(validation: Any, device: torch.device, dtype: torch.dtype) -> Pair:
    """Return a pair (x, y) on the network's device, or raise an error if it is not a pair."""
    if not isinstance(validation, tuple | list):
        raise InputError(
            f"validation must be a pair (x, y), got {type(validation).__name__}. For any other score, pass a function "
            "of the network as evaluate=."
        )
    return _pair(validation, None, "validation", device, dtype)


def described_rows(x: Tensor, y: Tensor) -> str:
    """Return the shapes of x and y, and a digest of rows spread over them."""
    most = min(DIGEST_ROWS, max(2, DIGEST_ELEMENTS // max(1, x[0].numel())), len(x))
    rows = torch.linspace(0, len(x) - 1, most, dtype=torch.float64).long().to(x.device)
    digest = hashlib.sha256()
    for values in (x, y):
        digest.update(values[rows].cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return f"x {tuple(x.shape)}, y {tuple(y.shape)}, sha256 {digest.hexdigest()[:16]}"


def shuffled_batches(rows: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Return a random order of all rows, split into whole batches of row indices, (steps, batch_size).

    All trainings use it, including stacked ones, so the same seed gives the same order.
    """
    steps = rows // batch_size
    return torch.randperm(rows, generator=generator)[: steps * batch_size].view(steps, batch_size)


def _pair(data: Any, y: Any, name: str, device: torch.device, dtype: torch.dtype) -> Pair:
    """Return x and y, given as a pair or separately, on the network's device; raise an error if they do not fit."""
    if y is None:
        if len(data) != 2:
            raise InputError(f"{name} must be a pair (x, y), got a {type(data).__name__} of {len(data)} entries.")
        data, y = data
    x = as_input(data, name, device, dtype)
    target = _placed(as_tensor(y, "y" if name == "data" else f"{name}'s y"), device, dtype)
    if len(x) != len(target):
        raise InputError(f"{name}: x has {len(x)} rows, but y has {len(target)}. Pass one target per row of x.")
    return x, target


def _placed(value: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a tensor on the network's device; real numbers in its dtype."""
    return value.detach().to(device, dtype if value.is_floating_point() else None, non_blocking=True)


@dataclass(frozen=True)
class _ArrayBatches:
    """Arrays that are already on the network's device."""

    x: Tensor
    y: Tensor
    batch_size: int

    def epoch(self, epoch: int, order: torch.Generator) -> Generator[Pair, None, None]:
        for rows in shuffled_batches(len(self.x), self.batch_size, order).to(self.x.device):
            yield self.x.index_select(0, rows), self.y.index_select(0, rows)

    def describe(self) -> str:
        return described_rows(self.x, self.y)


@dataclass(frozen=True)
class _DatasetBatches:
    """A map-style data set, read example by example in the order that arrays would have."""

    dataset: Any
    batch_size: int
    device: torch.device
    dtype: torch.dtype
    seed: int

    def epoch(self, epoch: int, order: torch.Generator) -> Generator[Pair, None, None]:
        rows = shuffled_batches(len(self.dataset), self.batch_size, order).tolist()
        loader: DataLoader[Any] = DataLoader(self.dataset, batch_sampler=rows, generator=torch.Generator())
        yield from _LoaderBatches(loader, self.device, self.dtype, self.seed).epoch(epoch, order)

    def describe(self) -> str:
        return f"{type(self.dataset).__name__} of {len(self.dataset)} rows"


@dataclass(frozen=True)
class _LoaderBatches:
    """The batches of a loader, in its order. If it shuffles, it samples a new order from the seed in every epoch."""

    loader: DataLoader[Any]
    device: torch.device
    dtype: torch.dtype
    seed: int

    @property
    def batch_size(self) -> int | None:
        return _batch_size(self.loader)

    def epoch(self, epoch: int, order: torch.Generator) -> Generator[Pair, None, None]:
        # Transforms may use the global generators. Each epoch has its own seed, so no generator state must be stored.
        seed = (self.seed + 1_000_003 * epoch) % 2**32
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        size = self.batch_size or 0
        with seeded_generators(self._generators(), seed):
            for step, batch in enumerate(self.loader):
                pair = list(batch[:2]) if isinstance(batch, tuple | list) else []
                if len(pair) != 2 or not all(isinstance(value, Tensor) for value in pair):
                    raise InputError(f"data must have batches that are pairs of tensors (x, y), got {_kind(batch)}.")
                if step == 0 or len(pair[0]) >= size:
                    yield _placed(pair[0], self.device, self.dtype), _placed(pair[1], self.device, self.dtype)

    def _generators(self) -> list[torch.Generator]:
        """Return the generators of the loader and its samplers, each once."""
        samplers = (self.loader.sampler, self.loader.batch_sampler, getattr(self.loader.batch_sampler, "sampler", None))
        generators = (getattr(owner, "generator", None) for owner in (self.loader, *samplers))
        return list({id(one): one for one in generators if isinstance(one, torch.Generator)}.values())

    def describe(self) -> str:
        try:
            length = f"{len(self.loader)} batches"
        except TypeError:
            length = "a stream"
        return f"{type(self.loader.dataset).__name__}, {length}"


Batches = _ArrayBatches | _DatasetBatches | _LoaderBatches
"""Batches of training examples. Examples left over at the end of an epoch, fewer than a batch, are dropped.

- `batch_size`: examples per step, or None if only the data determine it.
- `epoch(epoch, order)`: yields all examples once, in an order sampled from the generator `order`.
- `describe()`: a text by which a checkpoint recognises the data.
"""


def _batch_size(loader: DataLoader[Any]) -> int | None:
    """Return the batch size of a loader, or None if its batch sampler varies it."""
    return loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)


def _kind(batch: Any) -> str:
    """Return the type of a batch and of its entries, as text."""
    if isinstance(batch, tuple | list):
        return f"{type(batch).__name__}({', '.join(type(value).__name__ for value in batch)})"
    return type(batch).__name__
