"""Predictions for data in batches, and for images in overlapping tiles, which are too large for the memory as a whole.

Neighbouring tiles share pixels. Each pixel is taken from the tile in which it is farther from the edge: tiles are cut
in the middle of the overlap. All tiles use the same samples. For a network of convolutions and pooling, the result is
the same as for the whole image if

- `overlap` is at least the receptive field, so that no pixel depends on the edge of its tile;
- `tile` and `overlap` are multiples of the total stride (8 for three poolings by 2; up to 32), so that tiles are pooled
  like the whole image.

Seams are visible if the network depends on the whole image (global pooling, attention, resizing to a fixed size), or
if it has dropout of single pixels, whose masks depend on the position in the tile.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..arguments import as_whole, require_whole
from ..errors import BayesNormError, InputError
from ..network import BatchReader
from ..predictive import MultiTaskPredictive, Predictive, joined, map_tensors, stored_bytes
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


# Largest total stride for which tile positions are kept at multiples of the stride.
LARGEST_STRIDE = 32


def predict_tiles(predict: Callable[[Tensor], Predictive], x: Tensor, tile: Any, overlap: Any) -> Predictive:
    """Return the summary of whole images, assembled from summaries of tiles.

    Args:
        predict: Returns the summary of a batch of tiles.
        x: Images, (batch, ..., height, width).
        tile: Height and width of a tile, or one number for both.
        overlap: Number of pixels that neighbouring tiles share; None for a quarter of the tile's shorter side.
    """
    if x.dim() < 3:
        raise InputError(f"tile needs images, but x has shape {tuple(x.shape)}. Leave tile out.")
    sides = tile if isinstance(tile, tuple | list) else (tile, tile)
    sizes = [size for size in map(as_whole, sides) if size is not None and size > 0]
    if len(sides) != 2 or len(sizes) != 2:
        raise BayesNormError(f"tile must be a number of pixels such as 256, or (height, width), got {tile!r}.")
    cut = [size for size, length in zip(sizes, x.shape[-2:], strict=True) if size < length]
    most = min(cut) - 1 if cut else None
    shared = require_whole("overlap", min(cut or sizes) // 4 if overlap is None else overlap, 0, most)
    bands = []
    for top, height, upper, lower in _pieces(x.shape[-2], sizes[0], shared):
        row = []
        for left, width, first, last in _pieces(x.shape[-1], sizes[1], shared):
            tile_predictive = predict(x[..., top : top + height, left : left + width])
            row.append(_cropped(tile_predictive, (height, width), (upper, lower), (first, last)))
        bands.append(map_tensors(lambda *parts: torch.cat(parts, -1), *row))
    return map_tensors(lambda *parts: torch.cat(parts, -2), *bands)


def _pieces(length: int, size: int, shared: int) -> list[tuple[int, int, int, int]]:
    """Return for each tile along a side its start, its length, and the start and end of the part that is used.

    Tiles start at multiples of a common divisor of their size and the overlap, so the last tile may be shorter.
    """
    if length <= size:
        return [(0, length, 0, length)]
    unit = math.gcd(size, shared, LARGEST_STRIDE)
    last = -(-(length - size) // unit) * unit
    starts = [*range(0, last, size - shared), last]
    ends = [min(start + size, length) for start in starts]
    cuts = [0, *((after + end) // 2 for after, end in zip(starts[1:], ends, strict=False)), length]
    return [
        (start, end - start, cut - start, next_cut - start)
        for start, end, cut, next_cut in zip(starts, ends, cuts, cuts[1:], strict=False)
    ]


def _cropped(
    predictive: Predictive, size: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> Predictive:
    """Return a copy of some pixel rows and columns of a tile."""
    one: Any = next(iter(predictive.values())) if isinstance(predictive, MultiTaskPredictive) else predictive
    shape = tuple(one.parts[0].shape[1:])
    if shape[-2:] != size:
        raise InputError(
            f"tile needs a network that predicts every pixel of its input, but for {size[0]} x {size[1]} pixels this "
            f"network returns shape {shape}. Leave tile out."
        )
    return map_tensors(lambda part: part[..., slice(*rows), slice(*columns)].clone(), predictive)
