"""Sample mini-batches from every kind of training data, as in the MCBN paper.

Examples are sampled without replacement within a batch and independently between batches. A data set may therefore have
fewer examples than all batches together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from ...arguments import require_whole
from ...errors import BayesNormError, InputError
from ..calling import as_tensor
from ..restoring import isolated_randomness

TrainData = DataLoader[Any] | Dataset[Any] | Tensor | np.ndarray | tuple[Any, Any]
"""A `DataLoader`, a map-style or iterable `Dataset`, a tensor, a NumPy array, or a pair `(x, y)`."""

# Memory for examples of a stream, which cannot be indexed, while batches are sampled.
POOL_BYTES = 2**30


def batch_choices(rows: int, batch_size: int, count: int, seed: int) -> np.ndarray:
    """Return the indices of random mini-batches: (count, batch_size) numbers below `rows`, none twice in a batch.

    Args:
        rows: Number of examples to choose from.
        batch_size: Examples per batch.
        count: Number of batches, each chosen from all examples.
        seed: The same seed gives the same choice.
    """
    generator = np.random.default_rng(seed)
    chosen = np.empty((count, batch_size), dtype=np.int64)
    for batch in chosen:
        batch[:] = generator.choice(rows, batch_size, replace=False)
    return chosen


@dataclass(frozen=True)
class MiniBatches:
    """`count` mini-batches of `batch_size` inputs; iterating samples them, the same ones every time.

    The user's transforms may use the global generators: iterate within `isolated_randomness`.

    Args:
        source: The training examples.
        batch_size: Examples per batch.
        count: Number of batches.
        seed: Determines which examples are in which batch.
    """

    source: _ArrayRows | _IndexedRows
    batch_size: int
    count: int
    seed: int

    @property
    def rows(self) -> int:
        """Return N, the number of training examples to sample from."""
        return len(self.source)

    def __len__(self) -> int:
        return self.count

    def epoch(self) -> Iterator[Tensor]:
        """Yield all training examples once in random order, in batches; an incomplete last batch is left out."""
        order = np.random.default_rng(self.seed).permutation(self.rows)
        whole = order[: self.rows // self.batch_size * self.batch_size].reshape(-1, self.batch_size)
        return self.source.batches(whole.tolist(), self.seed)

    def first(self) -> Tensor:
        """Return the first batch alone, to check the network with."""
        return next(iter(replace(self, count=1)))

    def __iter__(self) -> Iterator[Tensor]:
        rows = batch_choices(self.rows, self.batch_size, self.count, self.seed)
        for batch in self.source.batches(rows.tolist(), self.seed):
            if batch.shape[0] != self.batch_size:
                raise InputError(
                    f"train_data: collate_fn turned a batch of {self.batch_size} examples into {batch.shape[0]} "
                    "inputs. It must return one input per example."
                )
            yield batch


def mini_batches(data: TrainData, batch_size: int | None, count: int, seed: int) -> MiniBatches:
    """Return mini-batches of any kind of training data; refuse data or sizes that give no batches.

    Args:
        data: The training data, see `TrainData`; the first entry of a batch or pair is the network's input.
        batch_size: M, the number of examples in a batch; None takes that of a `DataLoader`.
        count: Number of batches to sample.
        seed: The same seed gives the same batches; the global random state is not used.
    """
    if batch_size is None:
        batch_size = getattr(data, "batch_size", None)
        batch_size = batch_size or getattr(getattr(data, "batch_sampler", None), "batch_size", None)
        if batch_size is None:
            raise InputError(
                f"batch_size=None uses that of a DataLoader, but train_data is {type(data).__name__}. Pass the batch "
                "size that the network was trained with."
            )
    requirement = "a whole number of at least 2, normally the batch size that the network was trained with"
    batch_size = require_whole("batch_size", batch_size, 2, requirement=requirement, error=InputError)
    source = _as_rows(data, batch_size * count, seed)
    if len(source) == 0:
        raise InputError("train_data is empty. Pass the data that the network was trained on.")
    if len(source) < 3:
        raise InputError(
            f"train_data has {len(source)} examples, but at least 3 are needed for different batches of 2. Pass "
            "more data."
        )
    if batch_size >= len(source):
        raise InputError(
            f"batch_size={batch_size}, but train_data has only {len(source)} examples. Every batch would contain the "
            "same examples, so all samples would be equal and the epistemic uncertainty zero. Use at most "
            f"{len(source) - 1}, preferably much less."
        )
    return MiniBatches(source, batch_size, count, seed)


def example_rows(data: TrainData, seed: int) -> Tensor:
    """Return one or two inputs of any kind of training data, to check the network's outputs with."""
    with isolated_randomness(seed):
        rows = _as_rows(data, 2, seed)
        if len(rows) == 0:
            raise InputError("train_data is empty. Pass the data that the network was trained on, or None.")
        return next(rows.batches([[*range(min(2, len(rows)))]], seed))


def _as_rows(data: Any, most_rows: int, seed: int) -> _ArrayRows | _IndexedRows:
    """Return training data of any kind as examples with an index; of a stream, at most the first so many."""
    if isinstance(data, DataLoader):
        rows = _indices(data)
        if rows is not None:
            return _IndexedRows(data.dataset, rows, data)
        return _pool(data, most_rows, seed)
    if isinstance(data, IterableDataset):
        return _pool(data, most_rows, seed, single=True)
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise InputError(
                f"train_data is a {type(data).__name__} of {len(data)} entries. Pass a pair (x, y), or x alone."
            )
        x = as_tensor(data[0], "train_data")
        y = data[1]
        length = tuple(y.shape)[:1] if hasattr(y, "shape") else (len(y),) if hasattr(y, "__len__") else None
        if length not in (None, (len(x),)):
            raise InputError(
                f"train_data: x has {len(x)} rows, but y has {length[0] if length else 'none'}. Pass as many "
                "targets as inputs."
            )
        return _ArrayRows(x)
    if isinstance(data, Tensor | np.ndarray) or hasattr(data, "to_numpy"):
        return _ArrayRows(as_tensor(data, "train_data"))
    indexable = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if indexable and not isinstance(data, str | bytes | Mapping):
        return _IndexedRows(data, range(len(data)), None)
    raise InputError(
        "train_data must be a DataLoader, a Dataset, a tensor, a NumPy array or a pair (x, y), got "
        f"{type(data).__name__}."
    )


@dataclass(frozen=True)
class _ArrayRows:
    """Examples of a tensor in memory; `batches` yields the inputs of batches that are given by lists of indices."""

    x: Tensor

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, rows: Sequence[list[int]], seed: int) -> Iterator[Tensor]:
        for chosen in rows:
            yield self.x[torch.as_tensor(chosen, device=self.x.device)]


@dataclass(frozen=True)
class _IndexedRows:
    """A map-style data set, read in the same way as by the user's loader (transforms, collate_fn, workers)."""

    dataset: Any
    rows: Sequence[int]
    loader: DataLoader[Any] | None

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, rows: Sequence[list[int]], seed: int) -> Iterator[Tensor]:
        options: dict[str, Any] = {}
        if self.loader is not None:
            options = {
                "collate_fn": self.loader.collate_fn,
                "num_workers": min(self.loader.num_workers, len(rows)),
                "worker_init_fn": self.loader.worker_init_fn,
                "multiprocessing_context": self.loader.multiprocessing_context,
                "timeout": self.loader.timeout,
            }
        fetched = DataLoader(
            self.dataset,
            batch_sampler=[[self.rows[i] for i in chosen] for chosen in rows],
            generator=torch.Generator().manual_seed(seed),
            **options,
        )
        batches = iter(fetched)
        for _ in rows:
            try:
                batch = next(batches)
            except BayesNormError:
                raise
            except Exception as error:
                raise InputError(
                    f"train_data: {type(self.dataset).__name__} gave no batch ({type(error).__name__}: {error}). Its "
                    "collate_fn must turn examples into tensors."
                ) from error
            yield _input_of(batch)


def _indices(loader: DataLoader[Any]) -> Sequence[int] | None:
    """Return the indices that a loader samples from if its sampler gives all the same probability; otherwise None."""
    if isinstance(loader.dataset, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return None
    if type(loader.sampler) is SubsetRandomSampler:
        return loader.sampler.indices
    if type(loader.sampler) in (RandomSampler, SequentialSampler):
        return range(len(loader.dataset))  # type: ignore[arg-type]
    return None


def _pool(stream: Iterable[Any], most_rows: int, seed: int, single: bool = False) -> _ArrayRows:
    """Return the first examples of a stream of batches (`single`: of examples), as many as needed or as fit into
    memory.
    """
    parts: list[Tensor] = []
    rows = size = 0
    with isolated_randomness(seed):
        for entry in stream:
            part = _input_of(entry)[None] if single else _input_of(entry)
            if parts and part.shape[1:] != parts[0].shape[1:]:
                raise InputError(
                    f"train_data: inputs of shapes {tuple(parts[0].shape[1:])} and {tuple(part.shape[1:])} cannot be "
                    "batched together. Pass a data set with __len__, __getitem__ and a suitable collate_fn."
                )
            parts.append(part.cpu())
            rows, size = rows + len(part), size + part.numel() * part.element_size()
            if rows >= most_rows or size >= POOL_BYTES:
                break
    if not parts:
        raise InputError("train_data is empty. Pass the data that the network was trained on.")
    return _ArrayRows(torch.cat(parts)[:most_rows])


def _input_of(batch: Any) -> Tensor:
    """Return the network's input in a batch or example: itself, or the first entry of a tuple or list."""
    first = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if isinstance(first, np.ndarray):
        first = torch.from_numpy(first)
    if not isinstance(first, Tensor):
        raise InputError(
            f"train_data: a batch is {type(batch).__name__} and its input {type(first).__name__}, not a tensor. Use a "
            "collate_fn that returns x or (x, y, ...) with x a tensor."
        )
    return first
