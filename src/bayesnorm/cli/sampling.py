"""Sample rows at random while a table is read, so that the table need not fit in memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .tables import TableFile, pandas, read_chunks

# Rows that are read at a time.
CHUNK = 100_000


class Sample(NamedTuple):
    """A random sample of rows.

    Args:
        frame: The sampled rows, in the order of the file.
        rows: Number of rows that they were sampled from.
        without: Number of further rows, in which the needed value is missing.
    """

    frame: Any
    rows: int
    without: int


def read_sample(file: TableFile, most: int, needed: str, seed: int, chunk: int = CHUNK) -> Sample:
    """Return a uniform sample without replacement; memory holds at most one chunk and twice the sample.

    Args:
        file: The table, from `open_table`.
        most: Size of the sample; a table with fewer rows is returned whole.
        needed: The column in which a row must have a value.
        seed: The random seed.
        chunk: Rows that are read at a time.
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
    """Return the rows with the smallest keys, in their order."""
    frame = pandas().concat(held)
    kept = np.sort(np.argsort(keys, kind="stable")[:most])
    return [frame.iloc[kept].copy()], keys[kept]
