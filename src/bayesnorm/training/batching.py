"""Training data of every kind as (x, y) batches on the network's device, in an order that a seed decides."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ..arguments import require_whole
from ..errors import InputError
from ..network import as_input, as_tensor, seeded_generators

Pair = tuple[Tensor, Tensor]

# Most rows and numbers that arrays are recognised by.
DIGEST_ROWS, DIGEST_ELEMENTS = 256, 2**20


class Batches(Protocol):
    """Batches of training rows; rows left over at an epoch's end, fewer than a batch, are dropped."""

    @property
    def batch_size(self) -> int | None:
        """Rows per step; None where the data alone know."""

    def epoch(self, epoch: int, order: torch.Generator) -> Generator[Pair, None, None]:
        """Yield all rows once, in an order that `order` samples."""

    def describe(self) -> str:
        """Return what a checkpoint recognises the data by."""


def training_batches(
    data: Any, y: Any, batch_size: int | None, device: torch.device, dtype: torch.dtype, seed: int
) -> Batches:
    """Return a pair, x with `y` beside it, a `DataLoader` or a `Dataset` as batches on the network's device."""
    if isinstance(data, DataLoader):
        if y is not None:
            raise InputError("y: was given beside a DataLoader, whose batches hold their own; leave it out.")
        if batch_size not in (None, _batch_size(data)):
            raise InputError(
                f"batch_size: {batch_size} was given beside a DataLoader with its own ({_batch_size(data)}); leave it "
                "out, or make the loader with that batch size."
            )
        return _LoaderBatches(data, device, dtype, seed)
    if batch_size is None:
        raise InputError(
            f"batch_size: None takes a DataLoader's own, but data is {type(data).__name__}; a number would work."
        )
    requirement = "a whole number from 2"
    batch_size = require_whole("batch_size", batch_size, 2, requirement=requirement, error=InputError)
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = data.tensors
    if y is not None or isinstance(data, tuple | list):
        x, y = _pair(data, y, "data", device, dtype)
        if len(x) < 2:
            raise InputError("data: holds 1 row; at least 2 are needed.")
        return _ArrayBatches(x, y, min(batch_size, len(x)))
    if isinstance(data, IterableDataset):
        return _LoaderBatches(DataLoader(data, batch_size=batch_size), device, dtype, seed)
    if isinstance(data, Tensor | np.ndarray) or hasattr(data, "to_numpy"):
        raise InputError(f"y: none was given beside data of type {type(data).__name__}; the targets would work.")
    rows = len(data) if hasattr(data, "__len__") and hasattr(data, "__getitem__") else None
    if rows is None or isinstance(data, str | bytes | Mapping):
        raise InputError(
            f"data must be a pair (x, y), a DataLoader or a Dataset of such pairs, got {type(data).__name__}."
        )
    if rows < 2:
        raise InputError(f"data: holds {rows} rows; at least 2 are needed.")
    return _DatasetBatches(data, min(batch_size, rows), device, dtype, seed)


def validation_rows(validation: Any, device: torch.device, dtype: torch.dtype) -> Pair:
    """Bring a pair (x, y) to the network's device, or refuse what is none."""
    if not isinstance(validation, tuple | list):
        raise InputError(
            f"validation: {type(validation).__name__} was given; a pair (x, y) would work, and evaluate= takes a "
            "function that scores the network in any other way."
        )
    return _pair(validation, None, "validation", device, dtype)


def described_rows(x: Tensor, y: Tensor) -> str:
    """Return the shapes of x and y, and a digest of rows from all over them."""
    most = min(DIGEST_ROWS, max(2, DIGEST_ELEMENTS // max(1, x[0].numel())), len(x))
    rows = torch.linspace(0, len(x) - 1, most, dtype=torch.float64).long().to(x.device)
    digest = hashlib.sha256()
    for values in (x, y):
        digest.update(values[rows].cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return f"x {tuple(x.shape)}, y {tuple(y.shape)}, sha256 {digest.hexdigest()[:16]}"


def shuffled_batches(rows: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Draw an order of all rows, and part it into whole batches of row numbers, (steps, batch_size).

    Every training takes its rows in such orders, stacked ones too: they draw the same from the same seed.
    """
    steps = rows // batch_size
    return torch.randperm(rows, generator=generator)[: steps * batch_size].view(steps, batch_size)


def _pair(data: Any, y: Any, name: str, device: torch.device, dtype: torch.dtype) -> Pair:
    """Bring x and y, given as a pair or side by side, to the network's device, or refuse those that do not fit."""
    if y is None:
        if len(data) != 2:
            raise InputError(f"{name}: a {type(data).__name__} of {len(data)} entries; a pair (x, y) would work.")
        data, y = data
    x = as_input(data, name, device, dtype)
    target = _placed(as_tensor(y, "y" if name == "data" else f"{name}'s y"), device, dtype)
    if len(x) != len(target):
        raise InputError(f"{name}: x has {len(x)} rows and y {len(target)}; they must agree.")
    return x, target


def _placed(value: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Bring a tensor to the network's device, real numbers in its dtype."""
    return value.detach().to(device, dtype if value.is_floating_point() else None, non_blocking=True)


@dataclass(frozen=True)
class _ArrayBatches:
    """Rows that lie on the network's device already."""

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
    """A map-style data set, fetched row by row in the order that arrays would have."""

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
    """A loader's own batches, in its own order: a shuffling one samples it anew from the seed in every epoch."""

    loader: DataLoader[Any]
    device: torch.device
    dtype: torch.dtype
    seed: int

    @property
    def batch_size(self) -> int | None:
        return _batch_size(self.loader)

    def epoch(self, epoch: int, order: torch.Generator) -> Generator[Pair, None, None]:
        # Transforms may draw from the global generators; each epoch has its own seed, so that none need be stored.
        seed = (self.seed + 1_000_003 * epoch) % 2**32
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        size = self.batch_size or 0
        with seeded_generators(self._generators(), seed):
            for step, batch in enumerate(self.loader):
                pair = list(batch[:2]) if isinstance(batch, tuple | list) else []
                if len(pair) != 2 or not all(isinstance(value, Tensor) for value in pair):
                    raise InputError(f"data: a batch is {_kind(batch)}; a pair of tensors (x, y) would work.")
                if step == 0 or len(pair[0]) >= size:
                    yield _placed(pair[0], self.device, self.dtype), _placed(pair[1], self.device, self.dtype)

    def _generators(self) -> list[torch.Generator]:
        """Return the loader's own generators and its samplers', each once."""
        samplers = (self.loader.sampler, self.loader.batch_sampler, getattr(self.loader.batch_sampler, "sampler", None))
        found = (getattr(owner, "generator", None) for owner in (self.loader, *samplers))
        return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())

    def describe(self) -> str:
        try:
            length = f"{len(self.loader)} batches"
        except TypeError:
            length = "a stream"
        return f"{type(self.loader.dataset).__name__}, {length}"


def _batch_size(loader: DataLoader[Any]) -> int | None:
    """Return the rows in a loader's batches; None where its own sampler decides from batch to batch."""
    return loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)


def _kind(batch: Any) -> str:
    """Name the type of a batch, and what is in it."""
    if isinstance(batch, tuple | list):
        return f"{type(batch).__name__}({', '.join(type(value).__name__ for value in batch)})"
    return type(batch).__name__
