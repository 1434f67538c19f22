"""Sample mini-batches from every kind of training data, as in the MCBN paper.

Examples are sampled without replacement within a batch and independently between batches. A data set may therefore have
fewer examples than all batches together.
"""

from __future__ import annotations

import contextlib
import sys
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
from ..inputs import InputForm, is_data
from ..restoring import isolated_randomness
from ..several import joined_rows

TrainData = DataLoader[Any] | Dataset[Any] | Tensor | np.ndarray | Sequence[Any] | Mapping[str, Any] | Iterator[Any]
"""A `DataLoader`, a map-style or iterable `Dataset`, a tensor, an array, a pair `(x, y)`, a dict, or a generator or
list of batches."""

Entry = tuple[Tensor, Any]
"""The inputs of some examples, and their targets (None if there are none)."""

# Memory for examples of a stream, which cannot be indexed, while batches are sampled.
POOL_BYTES = 2**30

# Examples per batch when data without batches are read.
READ_ROWS = 256


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

    source: ArrayRows | IndexedRows
    batch_size: int
    count: int
    seed: int

    @property
    def form(self) -> InputForm:
        """Return the form of the network's inputs."""
        return self.source.form

    @property
    def rows(self) -> int:
        """Return N, the number of training examples to sample from."""
        return len(self.source)

    def __len__(self) -> int:
        return self.count

    def epoch(self) -> Iterator[Tensor]:
        """Yield all training examples once in random order, in batches; an incomplete last batch is left out."""
        whole = self._order()[: self.rows // self.batch_size * self.batch_size].reshape(-1, self.batch_size)
        return (inputs for inputs, _ in self.source.batches(whole.tolist(), self.seed))

    def at_most_once(self) -> Iterator[Tensor]:
        """Yield the mini-batches, or all examples once in random order, in batches as large, if these are not more."""
        if self.count * self.batch_size < self.rows:
            return iter(self)
        parts = np.array_split(self._order(), self.rows // self.batch_size)
        return (inputs for inputs, _ in self.source.batches([part.tolist() for part in parts], self.seed))

    def _order(self) -> np.ndarray:
        """Return the indices of all training examples in random order."""
        return np.random.default_rng(self.seed).permutation(self.rows)

    def first(self) -> Tensor:
        """Return the first batch alone, to check the network with."""
        return next(iter(replace(self, count=1)))

    def __iter__(self) -> Iterator[Tensor]:
        rows = batch_choices(self.rows, self.batch_size, self.count, self.seed)
        for batch, _ in self.source.batches(rows.tolist(), self.seed):
            if batch.shape[0] != self.batch_size:
                raise InputError(
                    f"train_data: collate_fn turned a batch of {self.batch_size} examples into {batch.shape[0]} "
                    "inputs. It must return one input per example."
                )
            yield batch


def mini_batches(
    data: TrainData, batch_size: int | None, count: int, seed: int, form: InputForm | None = None
) -> MiniBatches:
    """Return mini-batches of any kind of training data; refuse data or sizes that give no batches.

    Args:
        data: The training data, see `TrainData`.
        batch_size: M, the number of examples in a batch; None takes that of a `DataLoader`.
        count: Number of batches to sample.
        seed: The same seed gives the same batches; the global random state is not used.
        form: The form of the network's inputs. Default: None, one tensor.
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
    source = as_rows(data, batch_size * count, seed, form or InputForm())
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


def example_rows(data: TrainData, seed: int, form: InputForm | None = None) -> Tensor:
    """Return one or two inputs of any kind of training data, to check the network's outputs with."""
    with isolated_randomness(seed):
        rows = as_rows(data, 2, seed, form or InputForm())
        if len(rows) == 0:
            raise InputError("train_data is empty. Pass the data that the network was trained on, or None.")
        return next(rows.batches([[*range(min(2, len(rows)))]], seed))[0]


def as_rows(data: Any, most_rows: int, seed: int, form: InputForm, name: str = "train_data") -> ArrayRows | IndexedRows:
    """Return data of any kind as examples with an index; of a stream, at most the first so many.

    Args:
        data: The data, see `TrainData`.
        most_rows: The number of examples to read from a stream, which cannot be indexed.
        seed: Seed of random transforms of a stream.
        form: The form of the network's inputs.
        name: The name of the caller's argument, for messages.
    """
    if isinstance(data, DataLoader):
        rows = indices_of(data)
        if rows is not None:
            return IndexedRows(data.dataset, rows, data, form, name)
        return _pool(data, most_rows, seed, form, name)
    if isinstance(data, IterableDataset):
        return _pool(DataLoader(data, batch_size=READ_ROWS), most_rows, seed, form, name)
    if isinstance(data, Iterator):
        return _pool(data, most_rows, None, form, name)
    if form.lists_batches(data):  # all of them: they are in memory, and may be sorted
        return _pool(data, sys.maxsize, None, form, name)
    if is_data(data):
        return ArrayRows(*form.split(data, name), form)
    indexable = hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if indexable and not isinstance(data, str | bytes | tuple | list):
        return IndexedRows(data, range(len(data)), None, form, name)
    raise InputError(
        f"{name} must be a DataLoader, a Dataset, a tensor, an array, a pair (x, y), a dict of inputs, or a generator "
        f"or list of batches, got {type(data).__name__}."
    )


@dataclass(frozen=True)
class ArrayRows:
    """Examples in memory; `batches` yields the entries of batches that are given by lists of indices."""

    x: Tensor
    y: Any
    form: InputForm

    def __len__(self) -> int:
        return len(self.x)

    def batches(self, rows: Sequence[list[int]], seed: int) -> Iterator[Entry]:
        for chosen in rows:
            yield (
                self.x[torch.as_tensor(chosen, device=self.x.device)],
                None if self.y is None else _some(self.y, chosen),
            )


@dataclass(frozen=True)
class IndexedRows:
    """A map-style data set, read in the same way as by the user's loader (transforms, collate_fn, workers)."""

    dataset: Any
    rows: Sequence[int]
    loader: DataLoader[Any] | None
    form: InputForm
    name: str

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, rows: Sequence[list[int]], seed: int) -> Iterator[Entry]:
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
        yield from entries_of(fetched, self.form, self.name)


def indices_of(loader: DataLoader[Any]) -> Sequence[int] | None:
    """Return the indices that a loader samples from if its sampler gives all the same probability; otherwise None."""
    if isinstance(loader.dataset, IterableDataset) or type(loader.batch_sampler) is not BatchSampler:
        return None
    if type(loader.sampler) is SubsetRandomSampler:
        return loader.sampler.indices
    if type(loader.sampler) in (RandomSampler, SequentialSampler):
        return range(len(loader.dataset))  # type: ignore[arg-type]
    return None


def _pool(stream: Iterable[Any], most_rows: int, seed: int | None, form: InputForm, name: str) -> ArrayRows:
    """Return the first examples of a stream of batches, as many as needed or as fit into memory."""
    parts: list[Entry] = []
    rows = size = 0
    with contextlib.nullcontext() if seed is None else isolated_randomness(seed):
        for part, targets in entries_of(stream, form, name):
            if parts and part.shape[1:] != parts[0][0].shape[1:]:
                raise InputError(
                    f"{name}: inputs of shapes {tuple(parts[0][0].shape[1:])} and {tuple(part.shape[1:])} cannot be "
                    "batched together. Pass a data set with __len__, __getitem__ and a suitable collate_fn."
                )
            parts.append((part.cpu(), targets))
            rows, size = rows + len(part), size + part.numel() * part.element_size()
            if rows >= most_rows or size >= POOL_BYTES:
                break
    if not parts:
        raise InputError(f"{name} is empty. Pass the data that the network was trained on.")
    joined = joined_rows([part for part, _ in parts])[:most_rows]
    return ArrayRows(joined, _some(joined_targets([targets for _, targets in parts]), slice(most_rows)), form)


def entries_of(stream: Iterable[Any], form: InputForm, name: str) -> Iterator[Entry]:
    """Yield inputs and targets of the batches of a stream; explain errors of a loader."""
    batches = iter(stream)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            return
        except BayesNormError:
            raise
        except Exception as error:
            if not isinstance(stream, DataLoader):  # a generator of the user
                raise
            raise InputError(
                f"{name}: {type(stream.dataset).__name__} gave no batch ({type(error).__name__}: {error}). Its "
                "collate_fn must turn examples into tensors."
            ) from error
        if not is_data(batch):
            raise InputError(
                f"{name}: a batch is {type(batch).__name__}, not a tensor. Use a collate_fn that returns x or "
                "(x, y, ...) with x a tensor."
            )
        yield form.split(batch, name)


def joined_targets(parts: Sequence[Any]) -> Any:
    """Return the targets of several batches one after the other; None if a batch has none."""
    if any(part is None for part in parts):
        return None
    if isinstance(parts[0], Mapping):
        return {key: joined_targets([part[key] for part in parts]) for key in parts[0]}
    if isinstance(parts[0], tuple):
        return tuple(map(joined_targets, zip(*parts, strict=True)))
    return torch.cat([torch.as_tensor(np.asarray(part) if isinstance(part, list) else part).cpu() for part in parts])


def _some(targets: Any, rows: Any) -> Any:
    """Return the targets of some examples."""
    if targets is None:
        return None
    if isinstance(targets, Mapping):
        return {key: _some(value, rows) for key, value in targets.items()}
    if isinstance(targets, tuple) and is_data(targets):
        return tuple(_some(value, rows) for value in targets)
    if hasattr(targets, "to_numpy"):
        targets = targets.to_numpy()
    return targets[rows] if isinstance(targets, Tensor) else np.asarray(targets)[rows]
