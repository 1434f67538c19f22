"""Some rows of a table, drawn at random while it is read: a table that does not fit in memory can be learned from."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .tables import TableFile, pandas, read_chunks

# Rows that are read at once.
CHUNK = 100_000


class Sample(NamedTuple):
    """Rows that were drawn.

    Args:
        frame: The rows, in the order of the file.
        rows: How many they were drawn from.
        without: How many more have no value where one is needed.
    """

    frame: Any
    rows: int
    without: int


def read_sample(file: TableFile, most: int, needed: str, seed: int, chunk: int = CHUNK) -> Sample:
    """Draw rows without replacement, all with the same chance; no more than a part and twice the sample is held.

    Args:
        file: What `open_table` returned.
        most: How many; of a table with fewer, all.
        needed: The column that a row has to have a value in.
        seed: Decides which.
        chunk: Rows that are read at once.
    """
    generator, held, keys = np.random.default_rng(seed), list[Any](), np.empty(0)
    rows = without = 0
    for part in read_chunks(file, None, chunk):
        known = part[part[needed].notna()]
        rows, without = rows + len(known), without + len(part) - len(known)
        held.append(known)
        keys = np.concatenate([keys, generator.random(len(known))])
        if len(keys) > 2 * most:
            held, keys = _smallest(held, keys, most)
    held, keys = _smallest(held, keys, most)
    return Sample(held[0], rows, without)


def _smallest(held: list[Any], keys: Any, most: int) -> tuple[list[Any], Any]:
    """Keep the rows of the smallest keys, in their order."""
    frame = pandas().concat(held)
    kept = np.sort(np.argsort(keys, kind="stable")[:most])
    return [frame.iloc[kept].copy()], keys[kept]
