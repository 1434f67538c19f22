"""Predict images in tiles that overlap, where whole ones do not fit the memory.

Neighbouring tiles share pixels, and each pixel is taken from the tile in which it lies farther inside: tiles are cut in
the middle of what they share. Samples are the same in all tiles. For a network of convolutions and pooling the maps are
those of the whole image where

- `overlap` is at least its receptive field, so that no pixel sees the edge of its tile;
- `tile` and `overlap` are multiples of its total stride (8 for three poolings by 2; up to 32), so that tiles
  are pooled as the whole image is.

A network that looks at the whole image (global pooling, attention, a resizing to a fixed size), and dropout of single
pixels, whose masks are by place in the tile, see each tile alone, and there are seams.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..arguments import as_whole, require_whole
from ..errors import BayesNormError, InputError
from ..predictive import MultiTaskPredictive, Predictive, with_each_part

# Total stride of networks up to which tiles keep to its multiples.
LARGEST_STRIDE = 32


def predict_tiles(predict: Callable[[Tensor], Predictive], x: Tensor, tile: Any, overlap: Any) -> Predictive:
    """Return the summary of whole images, put together from those of tiles.

    Args:
        predict: Gives the summary of a batch of tiles.
        x: Images, (batch, ..., height, width).
        tile: Height and width of a tile; one number for both.
        overlap: How many pixels neighbouring tiles share; None for a quarter of the tile's shorter side.
    """
    if x.dim() < 3:
        raise InputError(f"tile: is for images, and x has shape {tuple(x.shape)}; leave tile out.")
    sides = tile if isinstance(tile, tuple | list) else (tile, tile)
    sizes = [size for size in map(as_whole, sides) if size is not None and size > 0]
    if len(sides) != 2 or len(sizes) != 2:
        raise BayesNormError(f"tile must be pixels such as 256, or (height, width), got {tile!r}.")
    cut = [size for size, length in zip(sizes, x.shape[-2:], strict=True) if size < length]
    most = min(cut) - 1 if cut else None
    shared = require_whole("overlap", min(cut or sizes) // 4 if overlap is None else overlap, 0, most)
    bands = []
    for top, height, upper, lower in _pieces(x.shape[-2], sizes[0], shared):
        row = []
        for left, width, first, last in _pieces(x.shape[-1], sizes[1], shared):
            found = predict(x[..., top : top + height, left : left + width])
            row.append(_cropped(found, (height, width), (upper, lower), (first, last)))
        bands.append(with_each_part(lambda *parts: torch.cat(parts, -1), *row))
    return with_each_part(lambda *parts: torch.cat(parts, -2), *bands)


def _pieces(length: int, size: int, shared: int) -> list[tuple[int, int, int, int]]:
    """Cut a side of an image: where each tile begins, how long it is, and which part of it is taken.

    Tiles begin at multiples of what divides both their size and what they share; for that the last may be shorter.
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


def _cropped(found: Predictive, size: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]) -> Predictive:
    """Return some rows and columns of a tile's pixels, as memory of its own."""
    one: Any = next(iter(found.values())) if isinstance(found, MultiTaskPredictive) else found
    shape = tuple(one.parts[0].shape[1:])
    if shape[-2:] != size:
        raise InputError(
            f"tile: gives predictions of shape {shape} for {size[0]} x {size[1]} pixels; a network that predicts every "
            "pixel of its input would work."
        )
    return with_each_part(lambda part: part[..., slice(*rows), slice(*columns)].clone(), found)
