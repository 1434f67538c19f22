"""Predictions for data in batches: the predictive of all examples together, as long as it fits into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from torch import Tensor

from ..errors import InputError
from ..network import BatchReader
from ..predictive import Predictive, joined, stored_bytes
from ..progress import long_progress

P = TypeVar("P", bound=Predictive)


def predict_batches(predict: Callable[[Tensor], P], reader: BatchReader) -> Iterator[P]:
    """Yield the predictive of every batch."""
    for inputs, _ in reader:
        yield predict(inputs)


def predict_whole(predict: Callable[[Tensor], P], reader: BatchReader) -> P:
    """Return the predictive of all batches together; refuse one that needs more than half of the memory.

    If it takes longer than two seconds, progress is shown.
    """
    parts: list[P] = []
    most, needed = _half_of_memory(), 0.0
    with long_progress("predict") as tell:
        for part in predict_batches(predict, reader):
            parts.append(part)
            needed += stored_bytes(part)
            expected = max(needed, needed / len(parts) * reader.batches)
            if expected > most:
                raise InputError(
                    f"x: the predictive of all examples needs {expected / 2**30:.1f} GiB, more than half of the memory "
                    f'({most / 2**30:.1f} GiB). Use keep="summary", fewer samples, or predict_batches(x).'
                )
            tell(len(parts), reader.batches)
    whole: P = joined(parts)
    return whole


def _half_of_memory() -> float:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2
    except (AttributeError, OSError, ValueError):  # not every system tells
        return float("inf")
