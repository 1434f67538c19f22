"""Read data of any kind in order: in batches for predictions, or into memory for tests and scores of many examples."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ...errors import InputError, warn
from ...progress import long_progress
from ..inputs import InputForm, is_array, is_data
from ..restoring import isolated_randomness
from ..several import Inputs, joined_rows
from .batches import (
    POOL_BYTES,
    READ_ROWS,
    ArrayRows,
    Entry,
    IndexedRows,
    as_rows,
    entries_of,
    indices_of,
    joined_targets,
)

# Largest number of examples, and of numbers in them, in a batch of an array that is read from a disk.
MOST_ROWS, READ_NUMBERS = 2**14, 2**22


def is_in_memory(data: Any, form: InputForm) -> bool:
    """Return whether data are arrays or numbers, which need not be read in batches."""
    if isinstance(data, np.memmap) or form.lists_batches(data):
        return False
    if isinstance(data, Tensor | Inputs) or is_array(data):
        return True
    if isinstance(data, Mapping):
        data = tuple(data.values())
    if isinstance(data, tuple | list):
        return all(is_in_memory(value, form) for value in data) if is_data(data) else True
    streams = DataLoader | IterableDataset | Iterator
    return is_data(data) or not (hasattr(data, "__getitem__") or isinstance(data, streams))


class BatchReader:
    """Reads data in batches: a `DataLoader` in its order, or in that of its data set if it shuffles; others row by row.

    Args:
        data: The data, see `TrainData`.
        form: The form of the network's inputs.
        name: The name of the caller's argument, for messages.
        seed: Seed of random transforms.
    """

    def __init__(self, data: Any, form: InputForm, name: str, seed: int = 0) -> None:
        self._form, self._name, self._seed = form, name, seed
        if isinstance(data, TensorDataset):
            data = data.tensors
        rows: Any = data if isinstance(data, IterableDataset | Iterator) or form.lists_batches(data) else None
        self._size = getattr(data, "batch_size", None) if isinstance(data, DataLoader) else None
        if rows is None and isinstance(data, DataLoader) and indices_of(data) is None:
            rows = data
        self._stream = DataLoader(rows, batch_size=READ_ROWS) if isinstance(rows, IterableDataset) else rows
        self._users = isinstance(data, Iterator)  # a generator of the user, whose random numbers are left alone
        self._rows: ArrayRows | IndexedRows | None = None
        if rows is None:
            self._rows = as_rows(data, 0, seed, form, name)
            if isinstance(self._rows, ArrayRows):
                self._size = max(READ_ROWS, min(MOST_ROWS, READ_NUMBERS // max(1, self._rows.x[:1].numel())))

    @property
    def rows(self) -> int | None:
        """The number of examples, or None if it is not known."""
        return None if self._rows is None else len(self._rows)

    @property
    def batches(self) -> int:
        """The number of batches, or 0 if it is not known."""
        if self._rows is not None:
            return -(-len(self._rows) // (self._size or READ_ROWS))
        with contextlib.suppress(TypeError, NotImplementedError):
            return len(self._stream)
        return 0

    def __iter__(self) -> Iterator[Entry]:
        entries = self._chosen(range(len(self._rows))) if self._rows is not None else self._streamed()
        number = 0
        while True:
            seeded = contextlib.nullcontext() if self._users else isolated_randomness(self._seed + number)
            with seeded:
                entry = next(entries, None)
            if entry is None:
                break
            yield entry
            number += 1
        if not number:
            raise InputError(f"{self._name} is empty. Pass at least one example.")

    def whole(self, most_bytes: int) -> Entry:
        """Return all examples and targets, or as many as fit: random ones, or the first of a stream; then warn."""
        entries, chosen = iter(self), None
        if self._rows is not None and len(self._rows):
            first, _ = next(self._chosen(range(min(2, len(self._rows)))))
            fit = max(2, most_bytes // (_bytes(first) // len(first) or 1))
            if fit < len(self._rows):
                generator = np.random.default_rng(self._seed)
                chosen = np.sort(generator.choice(len(self._rows), fit, replace=False)).tolist()
                entries = self._chosen(chosen)
        parts: list[Entry] = []
        size = 0
        with long_progress("read") as tell:
            for inputs, targets in entries:
                parts.append((inputs.cpu(), targets))
                tell(len(parts), self.batches)
                size += _bytes(inputs)
                if self._rows is None and size >= most_bytes:
                    chosen = list(range(sum(len(part) for part, _ in parts)))
                    break
        if chosen is not None:
            total = "" if self._rows is None else f" of {len(self._rows):,}"
            warn(
                f"{self._name}: {len(chosen):,}{total} examples are used, as many as fit into "
                f"{most_bytes / 2**30:.1f} GiB. Pass fewer, or tensors, to choose them yourself."
            )
        return joined_rows([inputs for inputs, _ in parts]), joined_targets([targets for _, targets in parts])

    def _chosen(self, rows: Any) -> Iterator[Entry]:
        assert self._rows is not None
        size = self._size or READ_ROWS
        groups = [list(rows[start : start + size]) for start in range(0, len(rows), size)]
        return self._rows.batches(groups, self._seed)

    def _streamed(self) -> Iterator[Entry]:
        assert self._stream is not None
        yield from entries_of(self._stream, self._form, self._name)


def whole_data(data: Any, form: InputForm, name: str) -> Entry:
    """Return inputs and targets (None if there are none) of any kind of data, read into memory of bounded size."""
    if is_in_memory(data, form):
        return form.split(data, name)
    return BatchReader(data, form, name).whole(POOL_BYTES)


def _bytes(x: Tensor) -> int:
    """Return the memory of inputs, with whole numbers in single precision."""
    return x.numel() * max(4, x.element_size())
